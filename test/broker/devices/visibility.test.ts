/** Which cards the masks of the broker's own process leave it, and how a worker is shown its own. */
import t from 'tap';
import { cpuCard, maskedCards, nvidiaVisibility, amdVisibility, visibilityOf, type CardDescription } from '../../../broker/devices/index.js';

const a = 'GPU-aaaaaaaa-2222-3333-4444-555555555555';
const b = 'GPU-abbbbbbb-2222-3333-4444-555555555555';
const c = 'GPU-cccccccc-2222-3333-4444-555555555555';
const slice = 'MIG-99999999-8888-7777-6666-555555555555';

function nvidia(device: string, index: number | null, name = 'H200'): CardDescription {
  return { ...cpuCard(), device, name, kind: 'gpu', totalBytes: 24, visibility: nvidiaVisibility(device), counted: { maker: 'nvidia', index } };
}

function amd(device: string, index: number | null = null): CardDescription {
  return { ...cpuCard(), device, kind: 'gpu', totalBytes: 24, visibility: amdVisibility(device), counted: { maker: 'amd', index } };
}

const left = (cards: readonly CardDescription[], environment: Record<string, string>, others: readonly CardDescription[] = []): string[] => maskedCards(cards, others, environment).map(({ device }) => device);
const refused = (cards: readonly CardDescription[], environment: Record<string, string>): string => {
  try {
    return `left ${left(cards, environment).join(', ')}`;
  } catch (error) {
    const { code, details } = error as { code: string; details: Record<string, string> };
    return `${code} ${details['path'] ?? ''}=${details['where'] ?? ''}: ${details['reason'] ?? ''}`;
  }
};

t.test('R126, R277: a mask in any order, in any spelling, leaves the cards that it names', async (t) => {
  // On the bus c is the first, whatever the UUIDs say.
  const cards = [nvidia(a, 1), nvidia(b, 2), nvidia(c, 0)];
  const rows: readonly (readonly [string | null, readonly string[]])[] = [
    [null, [a, b, c]], ['0', [c]], ['1', [a]], ['2,0', [b, c]], ['2,1,0', [a, b, c]], ['1,1', [a]], [' 1 , 2 ', [a, b]],
    [`${b},${a}`, [a, b]], [a.toUpperCase(), [a]], ['GPU-aa', [a]], ['gpu-ab,GPU-c', [b, c]], [`${c},1`, [a, c]],
    ['', []], ['-1', []], ['1,-1,0', [a]], ['1,,0', [a]], ['NoDevFiles', []],
  ];
  for (const [mask, wanted] of rows) t.strictSame(left(cards, mask === null ? {} : { CUDA_VISIBLE_DEVICES: mask }), wanted, JSON.stringify(mask));
  t.strictSame(left([cpuCard()], { CUDA_VISIBLE_DEVICES: '0' }), ['CPU-0'], 'a mask over no card hides nothing');
  t.strictSame(left([nvidia(a, 0)], { CUDA_VISIBLE_DEVICES: '1' }, [nvidia(b, 1)]), [], 'a card that cannot be measured has its number, and is not used');
});

t.test('B100: a word of a mask that means no card, or could mean several, is refused by name', async (t) => {
  const cards = [nvidia(a, 0), nvidia(b, 1)];
  t.match(refused(cards, { CUDA_VISIBLE_DEVICES: 'GPU-zzz' }), /^config_invalid CUDA_VISIBLE_DEVICES=GPU-zzz: no card is called so; there are GPU-a.*GPU-ab/);
  t.match(refused(cards, { CUDA_VISIBLE_DEVICES: c }), /^config_invalid .*no card is called so/);
  t.match(refused(cards, { CUDA_VISIBLE_DEVICES: 'GPU-a' }), /^config_invalid .*=GPU-a: it may be GPU-a.*GPU-ab/);
  t.match(refused(cards, { CUDA_VISIBLE_DEVICES: '2' }), /^config_invalid .*=2: there are 2 cards, counted from 0/);
  t.match(refused(cards, { CUDA_VISIBLE_DEVICES: 'cuda:0' }), /^config_invalid .*no card is called so/);
});

t.test('B98: a number is believed only where every way of counting agrees', async (t) => {
  const unlike = [nvidia(a, 0, 'small'), nvidia(b, 1, 'large')];
  t.match(refused(unlike, { CUDA_VISIBLE_DEVICES: '1' }), /^config_invalid .*=1: .*can only be guessed.*CUDA_DEVICE_ORDER=PCI_BUS_ID/);
  t.match(refused(unlike, { CUDA_VISIBLE_DEVICES: '1', CUDA_DEVICE_ORDER: 'FASTEST_FIRST' }), /^config_invalid/);
  t.strictSame(left(unlike, { CUDA_VISIBLE_DEVICES: '1', CUDA_DEVICE_ORDER: 'PCI_BUS_ID' }), [b]);
  t.strictSame(left(unlike, { CUDA_VISIBLE_DEVICES: '1,0' }), [a, b], 'all of them, whichever is which');
  t.strictSame(left(unlike, { CUDA_VISIBLE_DEVICES: b }), [b]);
  const sliced = [nvidia(slice, null), nvidia(b, 1)];
  t.match(refused(sliced, { CUDA_VISIBLE_DEVICES: '0', CUDA_DEVICE_ORDER: 'PCI_BUS_ID' }), /^config_invalid .*guessed/, 'slices have no number');
  t.strictSame(left(sliced, { CUDA_VISIBLE_DEVICES: 'MIG-9999' }), [slice]);
});

t.test('AMD cards: ROCr cuts first, HIP counts within what is left', async (t) => {
  const [x, y] = ['GPU-7f1a2b3c4d5e6f70', 'GPU-00112233aabbccdd'];
  const cards = [amd(x), amd(y)];
  t.strictSame(left(cards, { ROCR_VISIBLE_DEVICES: y }), [y]);
  t.strictSame(left(cards, { ROCR_VISIBLE_DEVICES: `${y},${x}`, HIP_VISIBLE_DEVICES: '1' }), [x], 'in the order of the mask before it');
  t.strictSame(left(cards, { ROCR_VISIBLE_DEVICES: '0,1' }), [x, y]);
  t.match(refused(cards, { HIP_VISIBLE_DEVICES: '0' }), /^config_invalid HIP_VISIBLE_DEVICES=0: .*guessed/);
  t.strictSame(left([amd(x, 0)], { GPU_DEVICE_ORDINAL: '0' }), [x]);
  t.strictSame(left([amd(x, 0)], { CUDA_VISIBLE_DEVICES: '' }), [], 'HIP heeds CUDA’s where it has none of its own');
  t.strictSame(left([amd(x, 0)], { CUDA_VISIBLE_DEVICES: '', HIP_VISIBLE_DEVICES: '0' }), [x]);
  t.strictSame(left([amd(x, 0), nvidia(a, 0)], { CUDA_VISIBLE_DEVICES: '' }), [x], 'beside NVIDIA cards it is theirs');
});

t.test('B98: a worker sees exactly its cards, by UUID, in their order, and one without a card sees none', async (t) => {
  const hidden = { CUDA_VISIBLE_DEVICES: '-1', ROCR_VISIBLE_DEVICES: '-1', HIP_VISIBLE_DEVICES: '-1' };
  t.strictSame(visibilityOf([nvidia(b, 0), nvidia(a, 1)]), { ...hidden, CUDA_DEVICE_ORDER: 'PCI_BUS_ID', CUDA_VISIBLE_DEVICES: `${a},${b}` });
  t.strictSame(visibilityOf([nvidia(b, 0)]), nvidiaVisibility(b));
  t.strictSame(visibilityOf([amd('GPU-2'), amd('GPU-1')]), { ...hidden, ROCR_VISIBLE_DEVICES: 'GPU-1,GPU-2', HIP_VISIBLE_DEVICES: '0,1' });
  t.strictSame(visibilityOf([cpuCard()]), hidden);
  t.strictSame(visibilityOf([{ ...cpuCard(), kind: 'simulated', device: 'SIM-1-0' }]), hidden);
});
