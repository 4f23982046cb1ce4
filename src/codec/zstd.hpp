// Loads libzstd where a codec needs it, and never links it: programs that do not use it, drop-ins above all, need not
// have it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace gradwire::codec {

/// Loads libzstd once. Where that fails it throws Error(unsupported), which says what to install, or what to do
/// `instead`. Call it before the functions below, on a thread with an ordinary stack.
void require_zstd(const std::string& user = "codec \"exact+zstd\"",
                  const std::string& instead = "write codec = \"exact\"");

/// Compresses `in` at level 1 into `out` as one zstd frame (RFC 8878) and returns the frame's size; 0 where it does not
/// fit into `out`. Contexts are the calling thread's, and reused. It may throw Error(out_of_memory).
[[nodiscard]] std::size_t zstd_compress(std::span<const std::byte> in, std::span<std::byte> out);

/// Fills `out`. Returns false, with undefined contents of `out`, where `in` is damaged or holds another number of
/// bytes. It may throw Error(out_of_memory).
[[nodiscard]] bool zstd_decompress(std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace gradwire::codec
