/** The calls of Bucket4j's Bucket: begin at {@link io.github.tidegate.bucket.TidegateBucket}. */
package io.github.tidegate.bucket;
