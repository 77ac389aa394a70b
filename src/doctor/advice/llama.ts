/** Why llama.cpp does not compute, by its last words: what that means, and what to do. */

export interface Explained {
  /** In place of its words, where those tell little. */
  readonly meaning: string | null;
  readonly advice: string;
}

const version = '3.21.1';
const buildIt = 'build llama.cpp for this card and driver (`npx --no node-llama-cpp source download --gpu cuda`, which needs nvcc of a CUDA that the driver knows and is then used by itself)';

/** What a build needs besides itself. */
const needs: Readonly<Record<string, string>> = {
  cuda: ', and the NVIDIA driver', vulkan: ', and Vulkan itself (libvulkan1 and the driver\'s ICD for the card)',
};

/** First match counts. `backend` and `driver` are put into the sentences. */
const table: readonly (readonly [RegExp, (about: { readonly backend: string; readonly driver: string }) => Explained])[] = [
  [/PTX was compiled with an unsupported toolchain/i, ({ driver }) => ({
    meaning: `its CUDA build has code for this card only as PTX of a newer CUDA than driver ${driver} can translate, so the first compute ends the process`,
    advice: `Update the NVIDIA driver, or ${buildIt}.`,
  })],
  [/it sees (\d+ cards|another card|no card)/i, ({ backend }) => ({ meaning: null, advice: `${backend === 'vulkan' ? 'Vulkan knows no UUIDs, so it cannot be kept to one of several cards: ' : ''}use the CUDA build on NVIDIA cards, or one card a machine (or container).` })],
  [/no kernel image is available/i, () => ({ meaning: 'its CUDA build has no code for a card of this kind', advice: `Take a newer node-llama-cpp, or ${buildIt}.` })],
  [/CUDA driver version is insufficient|driver version is insufficient/i, ({ driver }) => ({ meaning: `driver ${driver} is older than its CUDA build needs`, advice: `Update the NVIDIA driver, or ${buildIt}.` })],
  [/out of memory|cudaMalloc failed|unable to allocate|failed to allocate/i, () => ({ meaning: 'the card has no room for a process and a small model (about 1 GiB)', advice: 'End what holds the card (see the cards above) and try again.' })],
  [/libcudart|libcublas|libcuda\.so|cannot open shared object/i, ({ backend }) => ({
    meaning: null, advice: `A library that its ${backend} build needs is not found: install it (for CUDA \`npm install @node-llama-cpp/linux-x64-cuda-ext@${version}\`, or LD_LIBRARY_PATH=/usr/local/cuda/lib64).`,
  })],
  [/NoBinaryFound|no prebuilt|binary.*not found|not compatible|no binaries|not supported/i, ({ backend }) => ({
    meaning: `there is no ${backend} build of it here, or it does not load`, advice: `Install it with its optional packages (\`npm install node-llama-cpp@${version}\` without --omit=optional)${needs[backend] ?? ''}.`,
  })],
  [/SIGILL|illegal instruction/i, () => ({ meaning: 'this processor lacks instructions that its build uses', advice: 'Build it here: `npx --no node-llama-cpp source download --gpu false`.' })],
  [/SIGKILL/, () => ({ meaning: 'something ended it: most likely the kernel, for want of memory', advice: 'Look at `dmesg | grep -i oom`, and at the memory above.' })],
  [/ggml-cuda|CUDA error/i, () => ({ meaning: null, advice: `Its CUDA build, the driver and the card do not go together: update the NVIDIA driver, or ${buildIt}. If neither helps, see the errors of the driver above.` })],
  [/within \d+ (ms|s)|hang/i, () => ({ meaning: null, advice: 'The driver or the machine hangs: look at `dmesg | grep -iE "nvrm|xid"`, and try again when the machine is quiet.' })],
];

export function explainTrial(reason: string, backend: string, driver: string): Explained {
  const found = table.find(([words]) => words.test(reason))?.[1];
  return found?.({ backend, driver }) ?? { meaning: null, advice: `Try node-llama-cpp by itself (\`npx --no node-llama-cpp inspect gpu\`), and install it anew: \`npm install node-llama-cpp@${version}\`.` };
}

export const installLlama = `Install it beside Leasehold: \`npm install node-llama-cpp@${version}\`. Models of other engines run without it.`;
