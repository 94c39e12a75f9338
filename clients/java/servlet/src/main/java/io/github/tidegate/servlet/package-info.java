/**
 * Limits the clients of a servlet application: begin at {@link
 * io.github.tidegate.servlet.TidegateFilter}.
 */
package io.github.tidegate.servlet;
