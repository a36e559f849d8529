// The place of each node's tile on the map: zone by zone, as large as fits. A small cluster has tiles with names.

const LARGEST = 44;
const SMALLEST = 4;
const NAMED = { width: 170, size: 38 };
const MOST_NAMED = 200;
const MOST_KEYS = 20000;
const HEADING = 20;
const BETWEEN = 10;

// Returns {isNamed, width, size, height, zones: [{name, y, columns, nodes: [tile]}]} for a width in pixels; `width` and
// `size` are those of a tile. `zoneOf` returns the name of a tile's zone, or another group of nodes.
export function laidOut(tiles, width, height, zoneOf) {
  const byZone = new Map();
  for (const tile of tiles) {
    const zone = zoneOf(tile);
    if (!byZone.has(zone)) byZone.set(zone, []);
    byZone.get(zone).push(tile);
  }
  const zones = [...byZone].sort(([one], [other]) => compare(one, other));
  for (const [, nodes] of zones) nodes.sort((one, other) => compare(one[0], other[0]));
  const number = zones.reduce((sum, [, nodes]) => sum + nodes.length, 0);
  const isNamed = number <= MOST_NAMED && total(zones, NAMED.size, NAMED.width, width) <= 2 * height;
  let size = isNamed ? NAMED.size : LARGEST;
  while (!isNamed && size > SMALLEST && total(zones, size, size, width) > height) size -= 1;
  const tileWidth = isNamed ? Math.min(width, NAMED.width) : size;
  const columns = Math.max(1, Math.floor(width / tileWidth));
  let y = 0;
  const placed = zones.map(([name, nodes]) => {
    const zone = { name, y: y + HEADING, columns, nodes };
    y += HEADING + Math.ceil(nodes.length / columns) * size + BETWEEN;
    return zone;
  });
  return { isNamed, width: tileWidth, size, zones: placed, height: Math.max(y, HEADING) };
}

function total(zones, size, tileWidth, width) {
  const columns = Math.max(1, Math.floor(width / tileWidth));
  return zones.reduce((sum, [, nodes]) => sum + HEADING + BETWEEN + Math.ceil(nodes.length / columns) * size, 0);
}

// Names are compared with their numbers as numbers. A text that sorts like that is kept: a collator takes ten times as long.
const keys = new Map();

function keyOf(name) {
  let key = keys.get(name);
  if (key === undefined) {
    if (keys.size >= MOST_KEYS) keys.clear();
    key = name.replace(/\d+/g, (digits) => digits.padStart(12, "0"));
    keys.set(name, key);
  }
  return key;
}

export function compare(one, other) {
  const [first, second] = [keyOf(one), keyOf(other)];
  return first < second ? -1 : first > second ? 1 : 0;
}

// Returns the tile at a point, or null.
export function tileAt(layout, x, y) {
  const zone = layout.zones.find((each) => y >= each.y && y < each.y + Math.ceil(each.nodes.length / each.columns) * layout.size);
  const column = Math.floor(x / layout.width);
  if (!zone || column < 0 || column >= zone.columns) return null;
  return zone.nodes[Math.floor((y - zone.y) / layout.size) * zone.columns + column] ?? null;
}

// Returns where a node's tile is: {zone, place, x, y}, or null.
export function placeOf(layout, name) {
  for (const zone of layout.zones) {
    const place = zone.nodes.findIndex((tile) => tile[0] === name);
    if (place >= 0) {
      return {
        zone,
        place,
        x: (place % zone.columns) * layout.width,
        y: zone.y + Math.floor(place / zone.columns) * layout.size,
      };
    }
  }
  return null;
}

// Returns the name of the next node in the direction of an arrow key.
export function neighbour(layout, name, key) {
  const at = name ? placeOf(layout, name) : null;
  if (!at) return layout.zones[0]?.nodes[0]?.[0] ?? null;
  const { zone, place } = at;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -zone.columns, ArrowDown: zone.columns }[key];
  const wanted = zone.nodes[place + step];
  if (wanted) return wanted[0];
  const others = layout.zones[layout.zones.indexOf(zone) + (step > 0 ? 1 : -1)];
  if (!others) return name;
  return (step > 0 ? others.nodes[0] : others.nodes[others.nodes.length - 1])[0];
}
