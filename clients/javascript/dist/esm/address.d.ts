/** How an address is written where it names a client: as the server writes it for `/v1/check`. */
/** The address of a peer: an IPv6 one as its /64, since that is what one customer has; what is no address stays as it is. */
export declare function peerName(text: string): string;
/** Whether a field `X-Forwarded-For` has this address. */
export declare function says(forwarded: string, address: string): boolean;
