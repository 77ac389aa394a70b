// The messages in a form that any language can read (schema.json), and the README's tables of them.
import { compiled } from './build.mjs';
import { commentsIn } from './comments.mjs';
import { limitsTable } from './limits.mjs';
import { messageSections, namesTable, shapeSections } from './tables.mjs';
import { commonFields } from './words.mjs';

/** Functions of messages/shared.ts that make values with a name of their own in the README. */
const shapeNames = ['leasePart', 'hostNeed', 'leaseTerms', 'modelState', 'newModels', 'modelPolicy', 'admissionNumbers', 'modelSpec', 'reservedReading', 'deviceReading', 'floorReading'];
const scalarNames = ['deviceUuid', 'modelKey', 'leaseId', 'generationId', 'explainId', 'requestClass', 'residencyState', 'truthSource'];

export async function schemaJson() {
  const protocol = await compiled('index.js');
  const names = namesBy(protocol);
  const comments = new Map([...commentsIn('shared.ts'), ...commentsIn('control.ts'), ...commentsIn('data.ts')]);
  // Both planes have some types of the same name: each looks into its own file first.
  const ofPlane = { control: new Map([...comments, ...commentsIn('control.ts')]), data: comments };
  const planes = {};
  for (const plane of ['control', 'data']) planes[plane] = planeOf(plane, protocol, aboutFrom(ofPlane[plane], names));
  const about = aboutFrom(comments, names);
  const shapes = Object.fromEntries(shapeNames.map((name) => [name, fieldsOf(protocol[name]().description, name, about)]));
  const scalars = Object.fromEntries(scalarNames.map((name) => [name, { ...protocol[name]().description, about: comments.get(name) ?? '' }]));
  return {
    text: layOut({ $comment: 'Generated from messages/*.ts by `npm run generate`. Do not edit.', protocol: protocol.protocolVersion, body: protocol.bodyLimits, planes }),
    tables: {
      'control messages': messageSections(planes.control, names),
      'data messages': messageSections(planes.data, names),
      'shapes': shapeSections(shapes, names),
      'names': namesTable(scalars),
      'limits': limitsTable(protocol.defaultLimits, commentsIn('../limits.ts')),
    },
  };
}

function planeOf(plane, { planes, messageRules }, about) {
  const types = {};
  for (const [type, definition] of Object.entries(planes[plane])) {
    const rule = messageRules[plane].get(type);
    types[type] = {
      about: definition.about, from: definition.from, kind: rule.kind, states: rule.states, answers: [...rule.final], interim: [...rule.interim],
      repeatable: rule.repeatable, fields: fieldsOf(definition.schema.description, type, about),
    };
  }
  return types;
}

/** Field descriptions with their meaning added, however deep. */
function fieldsOf(description, trail, about) {
  return Object.fromEntries(
    Object.entries(description.fields).map(([name, field]) => [name, { ...deep(field, `${trail}.${name}`, about), about: about.of(`${trail}.${name}`) }]),
  );
}

function deep(description, trail, about) {
  switch (description.kind) {
    case 'object': return { ...description, fields: fieldsOf(description, about.shape(description) ?? trail, about) };
    case 'list': return { ...description, item: deep(description.item, trail, about) };
    case 'map': return { ...description, value: deep(description.value, trail, about) };
    case 'nullable':
    case 'optional': return { ...description, inner: deep(description.inner, trail, about) };
    default: return description;
  }
}

/** The field's own comment; else that of the same field in the same piece elsewhere; else what it means everywhere. */
function aboutFrom(comments, names) {
  const of = (trail) => {
    const steps = trail.split('.');
    const text = comments.get(trail) ?? comments.get(steps.slice(-2).join('.')) ?? comments.get(`chatMessage.${steps.at(-1)}`) ?? commonFields[steps.at(-1)];
    if (text === undefined) throw new Error(`${trail} has no comment in messages/*.ts and no entry in generate/words.mjs`);
    return text;
  };
  return { of, shape: (description) => names.get(JSON.stringify(description)) };
}

/** Description (as text) -> the name under which the README explains it. */
function namesBy(protocol) {
  return new Map([...shapeNames, ...scalarNames].map((name) => [JSON.stringify(protocol[name]().description), name]));
}

/** JSON with one line a field of a message: long enough to read, short enough to compare. */
function layOut({ planes, ...head }) {
  const lines = ['{', ...Object.entries(head).map(([key, value]) => ` ${JSON.stringify(key)}: ${JSON.stringify(value)},`), ' "planes": {'];
  const last = (list, index) => (index === list.length - 1 ? '' : ',');
  Object.entries(planes).forEach(([plane, types], p, all) => {
    lines.push(`  ${JSON.stringify(plane)}: {`);
    Object.entries(types).forEach(([type, { fields, ...rest }], m, messages) => {
      lines.push(`   ${JSON.stringify(type)}: {${JSON.stringify(rest).slice(1, -1)}, "fields": {`);
      Object.entries(fields).forEach(([name, field], f, every) => lines.push(`    ${JSON.stringify(name)}: ${JSON.stringify(field)}${last(every, f)}`));
      lines.push(`   }}${last(messages, m)}`);
    });
    lines.push(`  }${last(all, p)}`);
  });
  return [...lines, ' }', '}', ''].join('\n');
}
