import re

from shoal.report.svg import COLOURS, VARIABLES, for_page, inverted_for_file

DRAWING = """<?xml version="1.0"?><!DOCTYPE svg PUBLIC "x" "http://www.w3.org/x">
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9" version="1.1">
<metadata><a href="http://x"/></metadata><defs><style type="text/css">*{fill: red}</style></defs>
<g id="axes_1"><clipPath id="p1"/><path id="m1" clip-path="url(#p1)" fill="#FFFFFF"/><use xlink:href="#m1"/>
<text fill="#123456">#0072b2</text></g></svg>"""


def test_a_drawing_inside_a_page_refers_to_nothing_outside_itself():
    svg = for_page(DRAWING)
    assert svg.startswith('<svg viewBox="0 0 9 9">')
    assert not re.search(r"https?:|<style|<metadata|xmlns|axes_1", svg)


def test_names_of_two_drawings_differ_and_references_follow():
    first, second = (re.findall(r' id="([^"]*)"', for_page(each)) for each in (DRAWING, DRAWING + " "))
    assert len(first) == 2
    other = re.findall(r' id="([^"]*)"', for_page(DRAWING.replace("9 9", "8 8")))
    assert not set(first) & set(other)
    assert second == first
    assert f"url(#{first[0]})" in for_page(DRAWING)
    assert f'href="#{first[1]}"' in for_page(DRAWING)


def test_known_colours_become_variables_and_others_stay():
    svg = for_page(DRAWING)
    assert 'fill="var(--figure-paper, #ffffff)"' in svg
    assert 'fill="#123456"' in svg


def test_the_page_is_the_paper_of_a_drawing():
    paper = '<rect width="90" height="80" fill="#ffffff"/>\n'
    svg = for_page(f'<svg viewBox="0 0 90 80">{paper}<path/></svg>')
    assert svg == '<svg viewBox="0 0 90 80"><path/></svg>'


def test_a_file_of_its_own_is_inverted_for_dark_themes_on_screen_only():
    svg = inverted_for_file('<?xml version="1.0"?>\n<svg viewBox="0 0 9 9">\n <path/>\n</svg>')
    assert svg.startswith(
        '<?xml version="1.0"?>\n<svg viewBox="0 0 9 9"><style>@media screen and (prefers-color'
    )
    assert svg.endswith("</style>\n <path/>\n</svg>")


def test_every_colour_of_data_is_a_different_one():
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert len(set(VARIABLES.values())) == len(VARIABLES)
