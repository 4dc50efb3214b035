// Puts the parts of the page that the server sends in the place of their predecessors; without it the page is a picture.
const said = document.querySelector('main').dataset, notice = document.getElementById('connection');
let held = null, hasEnded = false;

function tell(sentence) {
  if (notice.textContent !== sentence) notice.textContent = sentence;
  notice.hidden = !sentence;
}

function put(name, html) {
  const section = document.getElementById(name);
  const scrolled = [...section.querySelectorAll('.sideways, .log')].map((box) => [box.scrollLeft, box.scrollTop]);
  const focused = section.contains(document.activeElement) ? focusables(section).indexOf(document.activeElement) : -1;
  section.innerHTML = html;
  section.querySelectorAll('.sideways, .log').forEach((box, number) => {
    if (scrolled[number]) [box.scrollLeft, box.scrollTop] = scrolled[number];
  });
  if (name === 'timeline') prepareTimelines(section);
  if (focused >= 0) focusables(section)[focused]?.focus({preventScroll: true});
}

function focusables(section) {
  return [...section.querySelectorAll('button, [tabindex]')];
}

// A reader who has zoomed looks at this step: it stays until the whole step is shown again.
function putTimeline(html) {
  const figure = document.querySelector('#timeline figure');
  const isZoomed = figure?.isZoomed?.() ?? false;
  held = isZoomed ? html : null;
  if (!isZoomed) return put('timeline', html);
  if (!figure.querySelector('.held')) {
    const note = figure.insertBefore(document.createElement('p'), figure.querySelector('figcaption'));
    note.className = 'held';
    note.textContent = said.held;
  }
}

document.getElementById('timeline').addEventListener('click', () => held && putTimeline(held));

function listen() {
  const events = new EventSource('events');
  events.onopen = () => tell('');
  events.onmessage = (event) => {
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      name === 'timeline' ? putTimeline(html) : put(name, html);
    }
  };
  events.addEventListener('end', () => {
    hasEnded = true;
    events.close();
    tell(said.ended.replaceAll('`', ''));
  });
  events.onerror = () => {
    if (hasEnded) return;
    const isRefused = events.readyState === EventSource.CLOSED;
    if (isRefused) setTimeout(listen, 5000);
    if (notice.hidden) tell(isRefused ? said.refused : said.lost.replace('{time}', new Date().toLocaleTimeString()));
  };
}
listen();
