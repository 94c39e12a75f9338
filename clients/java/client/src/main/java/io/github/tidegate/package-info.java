/**
 * Asks a Tidegate service whether a request may go ahead: begin at {@link
 * io.github.tidegate.Tidegate}.
 */
package io.github.tidegate;
