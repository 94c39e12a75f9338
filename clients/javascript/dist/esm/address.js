/** How an address is written where it names a client: as the server writes it for `/v1/check`. */
/** The address of a peer: an IPv6 one as its /64, since that is what one customer has; what is no address stays as it is. */
export function peerName(text) {
    const bare = withoutPort(text);
    if (IPV4.test(bare))
        return bare;
    const groups = groupsOf(bare);
    if (groups === undefined)
        return text;
    const [g0 = 0, g1 = 0, g2 = 0, g3 = 0, g4 = 0, g5 = 0, high = 0, low = 0] = groups;
    if (g0 + g1 + g2 + g3 + g4 === 0 && g5 === 0xffff) {
        return [high >> 8, high & 255, low >> 8, low & 255].join(".");
    }
    return `${networkOf([g0, g1, g2, g3])}/64`;
}
/** Whether a field `X-Forwarded-For` has this address. */
export function says(forwarded, address) {
    const wanted = peerName(address);
    return forwarded.split(",").some((entry) => peerName(entry.trim()) === wanted);
}
const IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}$/;
/** Without the port and the zone that some write. */
function withoutPort(text) {
    const inBrackets = /^\[([^\]]*)\](?::\d+)?$/.exec(text)?.[1];
    const bare = inBrackets ?? (/^([\d.]+):\d+$/.exec(text)?.[1] || text);
    return bare.split("%", 1)[0] ?? bare;
}
/** The eight groups of an IPv6 address. */
function groupsOf(text) {
    const ipv4 = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(text);
    let whole = text;
    if (ipv4?.[1] !== undefined && ipv4[2] !== undefined) {
        if (!IPV4.test(ipv4[2]))
            return undefined;
        const [a = 0, b = 0, c = 0, d = 0] = ipv4[2].split(".").map(Number);
        whole = `${ipv4[1]}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
    }
    const halves = whole.split("::");
    if (halves.length > 2)
        return undefined;
    const [before = [], after] = halves.map((half) => (half === "" ? [] : half.split(":")));
    const filled = after === undefined ? 0 : 8 - before.length - after.length;
    if (after !== undefined && filled < 1)
        return undefined;
    const all = [...before, ...Array(filled).fill("0"), ...(after ?? [])];
    const good = all.length === 8 && all.every((group) => /^[0-9a-f]{1,4}$/i.test(group));
    return good ? all.map((group) => Number.parseInt(group, 16)) : undefined;
}
/** A network whose lower four groups are 0, in the one spelling of RFC 5952: they are the longest run of zeros. */
function networkOf(upper) {
    const shown = [...upper];
    while (shown.at(-1) === 0)
        shown.pop();
    return `${shown.map((group) => group.toString(16)).join(":")}::`;
}
