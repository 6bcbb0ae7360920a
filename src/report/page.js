// Draws all of the page's data, and again where it changes.
const kDrawings = {lines: window.Dygraph && draw_lines, maps: draw_maps, phases: draw_phases, bars: draw_sweep};
for (const [name, draw] of Object.entries(kDrawings)) {
  const place = document.getElementById(name);
  if (place && draw) safely(() => draw(place));
}
if (charts.length > 0) add_controls();
document.documentElement.dataset.drawn = charts.length;
const redraw = () => redraws.forEach(draw => draw());
addEventListener('resize', redraw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { redraw(); redraw_lines(); });
if (data.reload_seconds > 0) {
  scrollTo(0, choice.scroll);
  let busy = false;  // nobody likes a page that goes while a hand is on it
  addEventListener('pointerdown', () => { busy = true; });
  addEventListener('pointerup', () => { busy = false; });
  setInterval(() => { if (!busy && !document.hidden) location.reload(); }, 1000 * data.reload_seconds);
}
