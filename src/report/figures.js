// Maps and bars.

/// Whether a list of numbers says anything.
const known = values => values.filter(value => value !== null);

/// A row of cells for each layer. layers: of each its values; x: where each column begins; pale, solid: the values of
/// an almost clear cell and of a full one; text: of a value, in a tooltip; frames: around cells.
function draw_map(place, drawing) {
  const {layers, x, pale, solid} = drawing;
  const keys = place.appendChild(make('div', 'keys'));
  keys.append(make('span', '', drawing.pale_text), make('span', 'ramp'), make('span', '', drawing.solid_text));
  const canvas = place.appendChild(make('canvas', 'map'));
  const kLeft = 62, height = Math.max(5, Math.min(28, Math.floor(360 / layers.length)));
  const axis = place.appendChild(make('div', 'axis'));
  axis.append(make('span', '', drawing.x_label + ' ' + readable(x[0])), make('span', '', readable(drawing.last_x)));
  const column_of = value => Math.max(0, x.findLastIndex(begin => begin <= value));
  const draw = () => {
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, wide = (width - kLeft) / x.length;
    canvas.width = width * ratio;
    canvas.height = height * layers.length * ratio;
    canvas.style.height = height * layers.length + 'px';
    const paint = canvas.getContext('2d');
    paint.scale(ratio, ratio);
    paint.font = '12px system-ui, sans-serif';
    paint.textBaseline = 'middle';
    const every = Math.ceil(14 / height);
    layers.forEach((values, layer) => {
      const top = layer * height;
      paint.globalAlpha = 1;
      paint.fillStyle = theme('--soft');
      if (layer % every === 0) paint.fillText('layer ' + layer, 0, top + height / 2);
      if (values.every(value => value === null)) paint.fillText('dense', kLeft + 8, top + height / 2);
      paint.fillStyle = theme('--warm');
      values.forEach((value, column) => {
        if (value === null) return;
        const way = solid === pale ? 0 : (value - pale) / (solid - pale);
        paint.globalAlpha = 0.06 + 0.94 * Math.max(0, Math.min(1, way));
        const left = Math.round(kLeft + column * wide), right = Math.round(kLeft + (column + 1) * wide);
        paint.fillRect(left, top, Math.max(1, right - left), height - 1);
      });
    });
    paint.globalAlpha = 1;
    paint.strokeStyle = theme('--ink');
    paint.setLineDash([5, 3]);
    for (const frame of drawing.frames || []) {
      const from = column_of(frame.from), to = column_of(frame.to);
      paint.strokeRect(kLeft + from * wide + 1, frame.layer * height + 1, (to - from + 1) * wide - 2, height - 3);
    }
  };
  with_tip(canvas, event => {
    const box = canvas.getBoundingClientRect();
    const layer = Math.floor((event.clientY - box.top) / height);
    const column = Math.floor((event.clientX - box.left - kLeft) / (box.width - kLeft) * x.length);
    const value = layers[layer] && layers[layer][column];
    if (value === undefined || value === null) return '';
    const end = column + 1 < x.length ? x[column + 1] - 1 : drawing.last_x;
    const where = readable(x[column]) + (end > x[column] ? ' to ' + readable(end) : '');
    const frames = (drawing.frames || []).filter(
      frame => frame.layer === layer && column_of(frame.from) <= column && column <= column_of(frame.to));
    return ['layer ' + layer + ', ' + drawing.x_label + ' ' + where, drawing.text(value),
            ...frames.map(frame => 'collapsed from step ' + frame.from + ' to ' + frame.to)].join('\n');
  });
  redraws.push(draw);
  draw();
}

/// bars: of each a label and a value for each part; stacked: parts add up, else each has a bar of its own; text: of a
/// value. Parts that are 0 in all bars are left out.
function draw_bars(place, drawing) {
  const {bars, stacked, text} = drawing;
  const parts = drawing.parts.map((name, i) => ({name, i})).filter(({i}) => bars.some(bar => bar.values[i] > 0));
  if (drawing.parts.length > 1) {
    const keys = place.appendChild(make('div', 'keys'));
    for (const {name, i} of parts) keys.append(key(name, i));
  }
  const sum = values => values.reduce((a, b) => a + b, 0);
  const most = Math.max(...bars.map(bar => stacked ? sum(bar.values) : Math.max(...bar.values))) || 1;
  const grid = place.appendChild(make('div', 'bars'));
  const add_row = (label, pieces, value) => {
    grid.append(make('div', 'label', label));
    const stack = grid.appendChild(make('div', 'stack'));
    for (const {i, told, length} of pieces) {
      const piece = stack.appendChild(make('div'));
      piece.style.flex = '0 1 calc((100% - 80px) * ' + length / most + ')';
      piece.style.background = 'var(--p' + i % 9 + ')';
      with_tip(piece, () => told);
    }
    stack.append(make('span', '', text(value)));
  };
  for (const {label, values} of bars) {
    const pieces = parts.map(({name, i}) => (
      {i, length: values[i], told: label + '\n' + name + ' ' + text(values[i])}));
    if (stacked || pieces.length === 0) add_row(label, pieces, sum(values));
    else pieces.forEach((piece, at) => add_row(at === 0 ? label : '', [piece], piece.length));
  }
}
