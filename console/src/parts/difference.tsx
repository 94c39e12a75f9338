// Two versions of a document, field by field.

type Fields = Record<string, unknown>;

function fields(document: unknown): Fields {
  return typeof document === "object" && document !== null && !Array.isArray(document)
    ? (document as Fields)
    : {};
}

/** The names of the fields that differ. */
export function differing(before: unknown, after: unknown): string[] {
  const [a, b] = [fields(before), fields(after)];
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  return names.filter((name) => JSON.stringify(a[name]) !== JSON.stringify(b[name]));
}

function Value(props: { value: unknown }) {
  return props.value === undefined ? (
    <span class="hint">absent</span>
  ) : (
    <code>{JSON.stringify(props.value)}</code>
  );
}

export function Difference(props: {
  before: unknown;
  after: unknown;
  heads?: [string, string];
  /** What is said where nothing differs. */
  none?: string;
}) {
  const names = differing(props.before, props.after);
  const [a, b] = [fields(props.before), fields(props.after)];
  const [before, after] = props.heads ?? ["Before", "After"];
  if (names.length === 0) return <p class="empty">{props.none ?? "Nothing differs."}</p>;
  return (
    <table class="difference">
      <thead>
        <tr>
          <th scope="col">Field</th>
          <th scope="col">{before}</th>
          <th scope="col">{after}</th>
        </tr>
      </thead>
      <tbody>
        {names.map((name) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td class="gone">
              <Value value={a[name]} />
            </td>
            <td class="new">
              <Value value={b[name]} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
