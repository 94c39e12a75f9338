// A line of a minute, as high as its highest value: a shape, beside the number that it led to.

export function Spark(props: { values: readonly number[] }) {
  const { values } = props;
  const most = Math.max(...values, 0);
  if (values.length < 2 || most === 0) return null;
  const points = values.map(
    (value, place) =>
      `${((60 * place) / (values.length - 1)).toFixed(1)},${(15 - (13 * value) / most).toFixed(1)}`,
  );
  return (
    <svg class="spark" width="60" height="16" aria-hidden="true">
      <polyline points={points.join(" ")} />
    </svg>
  );
}
