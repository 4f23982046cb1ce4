// Writes a file of gradients for `gradwire ratio` and bench_ratio, with one record per tensor and point of training. It
// uses only the standard library, so that any program may include it. The format is little-endian, without padding:
//   8 bytes  "GWGRAD01"
//   records  u32 name bytes, name, u32 point, u64 count, count x f32      until the end of the file
// Points count from 0 in the order of training; a point holds every tensor once, in the order of the forward pass.
#pragma once

#include <bit>
#include <cstdint>
#include <fstream>
#include <ios>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradient_dump {

static_assert(std::endian::native == std::endian::little, "the file is little-endian, and so is its writer");

inline constexpr std::string_view kMagic = "GWGRAD01";

/// Writes a file from its start. Throws std::runtime_error that names the file.
class Writer {
 public:
  explicit Writer(const std::string& path) : path_(path), out_(path, std::ios::binary | std::ios::trunc) {
    out_.write(kMagic.data(), static_cast<std::streamsize>(kMagic.size()));
    check();
  }

  void add(std::string_view name, std::uint32_t point, std::span<const float> values) {
    put(static_cast<std::uint32_t>(name.size()));
    out_.write(name.data(), static_cast<std::streamsize>(name.size()));
    put(point);
    put(static_cast<std::uint64_t>(values.size()));
    out_.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
    check();
  }

  void flush() {
    out_.flush();
    check();
  }

 private:
  template <typename T>
  void put(T value) {
    out_.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void check() const {
    if (!out_) {
      throw std::runtime_error("cannot write gradients to " + path_);
    }
  }

  std::string path_;
  std::ofstream out_;
};

}  // namespace gradient_dump
