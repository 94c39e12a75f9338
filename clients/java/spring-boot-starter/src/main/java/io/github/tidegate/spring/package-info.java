/** Limits the clients of a Spring Boot application by the properties tidegate.*. */
package io.github.tidegate.spring;
