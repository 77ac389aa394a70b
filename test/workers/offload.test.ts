/** How many layers of a model that is too large for its card go there all the same. */
import fc from 'fast-check';
import t from 'tap';
import { LeaseholdError } from '../../protocol/index.js';
import { askedBytes, couldHaveBytes, mostLayers } from '../../workers/runtime/offload.js';

t.test('the chosen count is the largest that fits, and never fewer than the operator allows', async (t) => {
  await t.resolves(fc.assert(fc.asyncProperty(fc.integer({ min: 1, max: 120 }), fc.nat(), fc.array(fc.nat({ max: 1_000 }), { minLength: 120, maxLength: 120 }), fc.nat({ max: 60_000 }), async (total, few, sizes, mostBytes) => {
    const fewest = few % total;
    // Layers are of any size; what the model takes besides them is the first.
    const bytesOf = (layers: number): number => sizes.slice(0, layers + 1).reduce((sum, bytes) => sum + bytes, 0);
    const asked: number[] = [];
    const chosen = await mostLayers({ fewest, total }, async (layers) => {
      asked.push(layers);
      return bytesOf(layers) <= mostBytes;
    });
    const allowed = Array.from({ length: total - fewest }, (_, place) => fewest + place);
    const largest = allowed.filter((layers) => bytesOf(layers) <= mostBytes).at(-1) ?? fewest;
    return chosen === largest && asked.length <= Math.ceil(Math.log2(total + 1)) && asked.every((layers) => layers > fewest && layers < total);
  })));
});

t.test('only a refusal for good, with what could be had, is asked again', async (t) => {
  const refusal = (code: 'never_fits' | 'deadline_passed', details: Record<string, string | number>): LeaseholdError => new LeaseholdError(code, { model: 'm', device: 'd', what: 'w', deadlineMs: 1, reason: 'r', needBytes: 9, mostBytes: 8, ...details });
  t.equal(couldHaveBytes(refusal('never_fits', { couldHaveBytes: 7 })), 7);
  t.equal(couldHaveBytes(refusal('never_fits', { couldHaveBytes: 0 })), 0, 'nothing is a figure');
  t.equal(couldHaveBytes(refusal('never_fits', {})), null, 'unknown is none');
  t.equal(couldHaveBytes(refusal('deadline_passed', { couldHaveBytes: 7 })), null, 'the card may have room for all of it later');
});

t.test('what is asked for is the sum of the parts, or the peak where that is more', async (t) => {
  const parts = [{ name: 'weights:2/6', kind: 'weights', bytes: 5, upFront: true }, { name: 'context:1', kind: 'context', bytes: 3, upFront: true }] as const;
  t.equal(askedBytes({ parts, peakBytes: 0 }), 8);
  t.equal(askedBytes({ parts, peakBytes: 9 }), 9);
});
