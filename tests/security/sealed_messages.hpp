// Shared by the tests of the sealed transport: frames, and waits that end.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "gradwire/transport.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {

/// Throws Error(timeout) after 20 s.
inline void wait_for(Transport& transport, const Operation& operation) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (operation.pending()) {
    static_cast<void>(transport.progress(std::chrono::milliseconds(1)));
    if (std::chrono::steady_clock::now() > end) {
      throw Error(ErrorCode::timeout, "the test waited 20 s");
    }
  }
}

inline void wait_for(Transport& transport, const std::vector<Operation>& operations) {
  for (const Operation& operation : operations) {
    wait_for(transport, operation);
  }
}

/// A frame of 96 bytes.
inline std::vector<std::byte> frame_of(std::uint32_t step, std::uint8_t flags = 0) {
  std::vector<std::byte> frame(32 + 64, std::byte{5});
  wire::FrameHeader header;
  header.dtype = 1;
  header.codec = 1;
  header.count = 16;
  header.step = step;
  header.flags = flags;
  wire::write_header(header, frame);
  return frame;
}

/// The code and text of a rank's error; empty: there was none.
inline std::string told(const std::exception_ptr& error) {
  try {
    if (error) {
      std::rethrow_exception(error);
    }
  } catch (const Error& caught) {
    return std::string(to_string(caught.code())) + ": " + caught.what();
  }
  return "";
}

}  // namespace gradwire::test
