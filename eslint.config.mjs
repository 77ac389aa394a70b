// Lint: type-aware rules for the whole tree, and the bans that keep protocol/ and broker/core/ pure.
import stylistic from '@stylistic/eslint-plugin';
import { defineConfig } from 'eslint/config';
import { createNodeResolver, flatConfigs as importX } from 'eslint-plugin-import-x';
import tseslint from 'typescript-eslint';

const pureFiles = ['protocol/**/*.ts', 'broker/core/**/*.ts'];
const wireLibraries = ['node-ipc', 'msgpackr'];

const wireOnly = {
  paths: wireLibraries.map((name) => ({ name, message: 'Only protocol/node knows the wire libraries.' })),
};

const pureGlobals = {
  Date: 'Time comes inside the event.',
  performance: 'Time comes inside the event.',
  setTimeout: 'Return an effect; the shell owns the timers.',
  setInterval: 'Return an effect; the shell owns the timers.',
  setImmediate: 'Return an effect; the shell owns the loop.',
  queueMicrotask: 'The core is synchronous.',
  process: 'Take what you need as an argument.',
  Buffer: 'Use Uint8Array.',
  console: 'Return an explain record; the shell logs.',
  crypto: 'Randomness comes inside the event.',
  fetch: 'Return an effect; the shell does the I/O.',
};

export default defineConfig(
  { ignores: ['dist/', 'node_modules/', '.tap/', '.gpu/', '**/*.generated.ts'] },
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },

  {
    files: ['**/*.ts'],
    extends: [...tseslint.configs.strictTypeChecked, importX.typescript],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    settings: {
      // Imports name the compiled file; the graph is walked over the sources.
      'import-x/resolver-next': [createNodeResolver({ extensionAlias: { '.js': ['.ts', '.js'] }, extensions: ['.ts', '.js'] })],
      'import-x/ignore': ['node_modules'],
    },
    rules: {
      'eqeqeq': 'error',
      'no-restricted-imports': ['error', wireOnly],
      'import-x/no-cycle': ['error', { ignoreExternal: true }],
      'import-x/no-self-import': 'error',
      'import-x/no-duplicates': ['error', { considerQueryString: true }],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      // `import('x')` as a type names a package that is loaded only when needed.
      '@typescript-eslint/consistent-type-imports': ['error', { disallowTypeAnnotations: false }],
      '@typescript-eslint/consistent-type-exports': 'error',
      // A written default is a decision; a missing case without one is an oversight.
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      '@typescript-eslint/return-await': ['error', 'in-try-catch'],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true, ignoreVoidOperator: true }],
      '@typescript-eslint/no-unnecessary-condition': ['error', { allowConstantLoopConditions: true }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_', ignoreRestSiblings: true }],
      // An implementation may be async because its interface is.
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/no-dynamic-delete': 'off',
      '@typescript-eslint/no-unnecessary-type-parameters': 'off',
      '@typescript-eslint/unified-signatures': 'off',
      '@typescript-eslint/no-invalid-void-type': 'off',
      // The union of what a runtime may send is wider than what its types promise.
      '@typescript-eslint/no-redundant-type-constituents': 'off',
    },
  },

  {
    files: ['broker/**/*.ts', 'workers/**/*.ts', 'src/**/*.ts'],
    ignores: ['src/cli/**', 'src/bench/**', 'src/scenarios/**', 'workers/models/**'],
    rules: { 'no-console': 'error' },
  },

  {
    files: pureFiles,
    ignores: ['protocol/node/**'],
    rules: {
      'no-restricted-globals': ['error', ...Object.entries(pureGlobals).map(([name, message]) => ({ name, message }))],
      'no-restricted-properties': ['error', { object: 'Math', property: 'random', message: 'Randomness comes inside the event.' }],
      'no-restricted-imports': ['error', {
        patterns: [
          { regex: '^(?!\\.)', message: 'This layer is pure: no node: module and no package.' },
          { regex: '^\\..*/node/', message: 'This layer is pure: protocol/node touches Node.' },
        ],
      }],
      'no-restricted-syntax': ['error',
        { selector: ':matches(FunctionDeclaration, FunctionExpression, ArrowFunctionExpression)[async=true]', message: 'This layer is synchronous.' },
        { selector: 'AwaitExpression', message: 'This layer is synchronous.' },
      ],
    },
  },

  {
    files: ['protocol/node/**/*.ts'],
    rules: { 'no-restricted-imports': 'off' },
  },

  {
    files: ['test/**/*.ts'],
    rules: {
      // tap's subtests are promises that tap itself awaits.
      '@typescript-eslint/no-floating-promises': ['error', {
        allowForKnownSafeCalls: [{ from: 'package', name: 'test', package: '@tapjs/test' }],
      }],
      '@typescript-eslint/no-non-null-assertion': 'off',
    },
  },

  {
    files: ['**/*.mjs'],
    extends: [tseslint.configs.recommended],
    rules: { eqeqeq: 'error' },
  },

  {
    files: ['**/*.ts', '**/*.mjs'],
    plugins: { '@stylistic': stylistic },
    rules: {
      '@stylistic/semi': 'error',
      '@stylistic/quotes': ['error', 'single', { avoidEscape: true, allowTemplateLiterals: 'always' }],
      '@stylistic/eol-last': 'error',
      '@stylistic/no-tabs': 'error',
      '@stylistic/no-trailing-spaces': 'error',
    },
  },
);
