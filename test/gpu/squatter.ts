/**
 * A stranger on a real card (the first, or the one of that number): takes BYTES through the driver, says `taken`, and
 * gives them back when its standard input ends. Nothing of ours is in it.
 *
 *   node dist/test/gpu/squatter.js BYTES [CARD]
 */
import { createRequire } from 'node:module';

const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
const library = koffi.load('libcuda.so.1');
const cuInit = library.func('int cuInit(unsigned int)');
const cuDeviceGet = library.func('int cuDeviceGet(_Out_ int *, int)');
const cuDevicePrimaryCtxRetain = library.func('int cuDevicePrimaryCtxRetain(_Out_ void **, int)');
const cuCtxSetCurrent = library.func('int cuCtxSetCurrent(void *)');
const cuMemAlloc = library.func('int cuMemAlloc_v2(_Out_ uint64_t *, size_t)');

function check(what: string, code: unknown): void {
  if (code === 0) return;
  process.stderr.write(`${what} answered ${String(code)}\n`);
  process.exit(1);
}

check('cuInit', cuInit(0));
const device = [0];
check('cuDeviceGet', cuDeviceGet(device, Number(process.argv[3] ?? 0)));
const context = [null];
check('cuDevicePrimaryCtxRetain', cuDevicePrimaryCtxRetain(context, device[0]));
check('cuCtxSetCurrent', cuCtxSetCurrent(context[0]));
check('cuMemAlloc', cuMemAlloc([0n], Number(process.argv[2])));
process.stdout.write('taken\n');
process.stdin.on('end', () => { process.exit(0); }).resume();
