// Zoom and pan of the timelines of a page. Without it they are pictures.
prepareTimelines(document);

function prepareTimelines(root) {
  for (const figure of root.querySelectorAll('figure:has(svg.timeline)')) {
    const views = [...figure.querySelectorAll('svg.timeline')].map(viewOf);
    const words = JSON.parse(figure.querySelector('svg.timeline').dataset.words);
    const bar = document.createElement('p');
    bar.className = 'zoom';
    const buttons = [['+', 2], ['\u2212', 0.5], ['\u21a4\u21a6', 0]];
    buttons.forEach(([sign, factor], number) => {
      const button = bar.appendChild(document.createElement('button'));
      button.type = 'button';
      button.textContent = sign;
      button.title = words[number];
      button.setAttribute('aria-label', words[number]);
      button.onclick = () => views.forEach((view) => view.zoom(factor, 0.5));
    });
    bar.append(words[3]);
    figure.insertBefore(bar, figure.querySelector('figcaption'));
    figure.isZoomed = () => views.some((view) => view.isZoomed());
  }
}

function viewOf(svg) {
  const inner = svg.querySelector('.stretched'), ticks = svg.querySelector('.ticks');
  const [line, label] = [ticks.querySelector('line'), ticks.querySelector('text')];
  const totalMs = +svg.dataset.ms, wide = svg.width.baseVal.value;
  let scale = 1, left = 0;  // `left`: the part of the step before the view, in widths of the view

  function show() {
    left = Math.min(Math.max(left, 0), scale - 1);
    inner.setAttribute('width', `${100 * scale}%`);
    inner.setAttribute('x', `${-100 * left}%`);
    const least = totalMs / scale / (wide / 70), power = 10 ** Math.floor(Math.log10(least));
    const tickMs = [1, 2, 5, 10].find((size) => size * power >= least) * power;
    ticks.replaceChildren();
    for (let number = Math.ceil(left / scale * totalMs / tickMs); number * tickMs <= (left + 1) / scale * totalMs; number++) {
      const at = `${100 * number * tickMs / totalMs}%`, mark = line.cloneNode(), text = label.cloneNode();
      mark.setAttribute('x1', at), mark.setAttribute('x2', at), text.setAttribute('x', at);
      text.textContent = `${+(number * tickMs).toPrecision(6)} ms`;
      const isLast = ((left + 1) / scale * totalMs - number * tickMs) / totalMs * scale * wide < 45;
      text.setAttribute('text-anchor', isLast ? 'end' : 'start');
      ticks.append(mark, text);
    }
    svg.style.cursor = svg.style.touchAction = '';
    if (scale > 1) svg.style.cursor = 'grab', svg.style.touchAction = 'pan-y';
  }

  function zoom(factor, at) {
    const place = (left + at) / scale;  // this part of the step stays where it is
    scale = factor ? Math.min(Math.max(scale * factor, 1), 1000) : 1;
    left = place * scale - at;
    show();
  }

  const partOf = (event) => (event.clientX - svg.getBoundingClientRect().left) / svg.getBoundingClientRect().width;
  svg.addEventListener('dblclick', (event) => zoom(event.shiftKey ? 0.5 : 2, partOf(event)));
  svg.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 200), partOf(event));
  }, {passive: false});
  svg.addEventListener('pointermove', (event) => {
    if (!event.buttons || scale === 1) return;
    left -= event.movementX / svg.getBoundingClientRect().width;
    show();
  });
  return {zoom, isZoomed: () => scale > 1};
}
