/**
 * Shows a model file to llama.cpp where nobody else is hurt: builds the model and a context without their weights,
 * then uses its vocabulary. Says `done` when the process has lived through that, whatever it found; what was wrong is
 * said by whoever asks next.
 */
import { importLibrary } from './library.js';

const sample = 'Hello, world! 42\n\tÄé漢字 👍 ';

async function main(path: string, isEmbeddingContext: boolean): Promise<void> {
  const library = await importLibrary();
  const llama = await library.getLlama({ gpu: false, build: 'never', skipDownload: true, progressLogs: false, maxThreads: 1, ramPadding: 0, logLevel: library.LlamaLogLevel.disabled });
  const info = await library.readGgufFileInfo(path, { sourceType: 'filesystem', logWarnings: false });
  const insights = await library.GgufInsights.from(info, llama);
  await insights.estimateModelResourceRequirementsV2({ gpuLayers: 0, useMmap: false });
  const flashAttention = insights.flashAttentionSupported;
  await insights.estimateContextResourceRequirementsV2({ contextSize: 256, batchSize: 256, sequences: 1, modelGpuLayers: 0, flashAttention, isEmbeddingContext, useMmap: false });
  const model = await llama.loadModel({ modelPath: path, vocabOnly: true, gpuLayers: 0, useMmap: true, ignoreMemorySafetyChecks: true });
  model.detokenize(model.tokenize(sample, true));
  await model.dispose();
}

const done = (): void => void process.send?.('done', () => process.exit());

process.on('disconnect', () => process.exit());
// A refusal is an answer like any other; only the end of the process is none.
await main(process.argv[2] ?? '', process.argv[3] === 'embedding').then(done, done);
