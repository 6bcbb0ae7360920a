// What the page's scripts share. The build joins them in one block: shared, lines, figures, run_page,
// sweep_page, page.
//
// Names come from files that strangers wrote: they are only ever set as text.
const data = JSON.parse(document.getElementById('data').textContent);
const redraws = [];  // after a change of size or theme

function make(tag, css_class, text) {
  const element = document.createElement(tag);
  if (css_class) element.className = css_class;
  if (text !== undefined) element.textContent = text;
  return element;
}
const theme = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = i => theme('--p' + i % 9);
const plain = new Intl.NumberFormat('en', {maximumSignificantDigits: 4});
const short = new Intl.NumberFormat('en', {maximumSignificantDigits: 4, notation: 'compact'});
function readable(value, format = plain) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e15)) return Number(value.toPrecision(3)).toExponential();
  return format.format(value);
}
const milliseconds = ms => ms >= 1000 ? readable(ms / 1000) + ' s' : readable(ms) + ' ms';
function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; count >= 1024 && unit + 1 < units.length; ++unit) count /= 1024;
  return readable(Number(count.toPrecision(3))) + ' ' + units[unit];
}
/// A box of the grid -> what is drawn into. `place` is where boxes of its kind go.
function section(place, title, note, css_class) {
  const box = place.appendChild(make('section', css_class));
  box.append(make('h2', '', title), make('p', 'note', note));
  return box.appendChild(make('div'));
}
/// Where a drawing breaks, the others and the tables are there.
function safely(draw) {
  try { draw(); } catch (error) { console.error(error); }
}
function key(name, index) {
  const entry = make('span');
  const box = entry.appendChild(make('i', 'key'));
  box.style.background = colour(index);
  entry.append(name);
  return entry;
}

// One tooltip for all that has no values beside it.
const tip = make('div');
tip.id = 'tip';
tip.hidden = true;
document.body.append(tip);
function show_tip(event, text) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + 'px';
  tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)) + 'px';
}
function with_tip(element, text_at) {
  element.addEventListener('pointermove', event => show_tip(event, text_at(event)));
  element.addEventListener('pointerleave', () => { tip.hidden = true; });
}

// What a reader chose stays when the page loads itself again.
const kStored = 'moeloom ' + location.pathname + ' ' + (data.runs || []).map(run => run.name).join();
const choice = {smoothing: 0, log: false, axis: 'step', hidden: [], zoom: null, scroll: 0};
try { Object.assign(choice, JSON.parse(sessionStorage.getItem(kStored)) || {}); } catch { /* a new start */ }
function store() {
  try { sessionStorage.setItem(kStored, JSON.stringify({...choice, scroll: scrollY})); } catch { /* not kept */ }
}
addEventListener('pagehide', store);
