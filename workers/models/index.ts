export {
  tinyModelNames,
  tinyModels,
  tinyModelsFolder,
  weightFileBytesMax,
  type ExampleQuestion,
  type TinyModel,
  type TinyModelName,
  type WeightFile,
} from './catalogue.js';
export { renderQuestion } from './chatml.js';
export { checkAnswer, checkFact, checkSum, checkTale } from './checkers.js';
