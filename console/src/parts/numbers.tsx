// Fields for numbers. What is typed is sent as it is: what is wrong with it the server says.

/** What the fields of a policy are called. */
export const LABELS: Record<string, string> = {
  limit: "Limit",
  window_seconds: "Window, in seconds",
  burst: "Burst",
  lease_seconds: "Lease of a permit, in seconds",
  period: "Period",
  time_zone: "Time zone",
};

interface NumberInputProps {
  id: string;
  "aria-describedby": string;
  "aria-invalid": boolean;
  inputMode?: "numeric" | "text";
  value: string;
  change: (text: string) => void;
}

export function NumberInput(props: NumberInputProps) {
  const { value, change, inputMode = "numeric", ...attributes } = props;
  return (
    <input
      {...attributes}
      inputMode={inputMode}
      autocomplete="off"
      size={12}
      value={value}
      onInput={(event) => change(event.currentTarget.value.trim())}
    />
  );
}
