/** Colours, when they are wanted: on a terminal, unless NO_COLOR says no. */

type Paint = (text: string) => string;

/** How a stretch of a bar is filled; `model` with an index tells models apart. */
export type Tone = 'model' | 'floor' | 'hold' | 'residue' | 'returning' | 'foreign' | 'free' | 'reserve';

export interface Palette {
  readonly enabled: boolean;
  readonly bold: Paint;
  readonly dim: Paint;
  readonly red: Paint;
  readonly green: Paint;
  readonly yellow: Paint;
  readonly cyan: Paint;
  /** Text on the tone's background. */
  on(tone: Tone, index: number): Paint;
  /** Text in the tone's colour, for legends. */
  as(tone: Tone, index: number): Paint;
}

/** Calm colours of the 256 every terminal of today has: [under white text, as text on dark and light grounds alike]. */
const modelColours = [[25, 33], [30, 37], [96, 133], [65, 71], [94, 136], [131, 167], [60, 68], [29, 35]] as const;
const toneColours: Readonly<Record<Exclude<Tone, 'model'>, number>> = {
  floor: 240, hold: 136, residue: 124, returning: 66, foreign: 238, free: 235, reserve: 237,
};

const plain: Paint = (text) => text;

/** NO_COLOR (any value) and TERM=dumb say no, FORCE_COLOR says yes, else a terminal does. */
export function wantsColour(isTerminal: boolean, env: NodeJS.ProcessEnv): boolean {
  if ((env['NO_COLOR'] ?? '') !== '') return false;
  const forced = env['FORCE_COLOR'];
  if (forced !== undefined && forced !== '') return forced !== '0' && forced !== 'false';
  return isTerminal && env['TERM'] !== 'dumb';
}

export function createPalette(enabled: boolean): Palette {
  if (!enabled) return { enabled, bold: plain, dim: plain, red: plain, green: plain, yellow: plain, cyan: plain, on: () => plain, as: () => plain };
  return {
    enabled,
    bold: paint('1', '22'),
    dim: paint('2', '22'),
    red: paint('31', '39'),
    green: paint('32', '39'),
    yellow: paint('33', '39'),
    cyan: paint('36', '39'),
    on: (tone, index) => paint(`38;5;${tone === 'free' || tone === 'reserve' ? 245 : 255};48;5;${tone === 'model' ? modelColour(index)[0] : toneColours[tone]}`, '39;49'),
    as: (tone, index) => paint(`38;5;${tone === 'model' ? modelColour(index)[1] : asText(tone)}`, '39'),
  };
}

function modelColour(index: number): readonly [number, number] {
  return modelColours[index % modelColours.length] ?? modelColours[0];
}

/** The greys of the bar would vanish as text on a dark ground. */
function asText(tone: Exclude<Tone, 'model'>): number {
  return toneColours[tone] >= 232 ? 245 : toneColours[tone];
}

function paint(open: string, close: string): Paint {
  return (text) => (text === '' ? '' : `\u001B[${open}m${text}\u001B[${close}m`);
}
