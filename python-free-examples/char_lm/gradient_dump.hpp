// Reads and writes a file of gradients, with one record per tensor and point of training. It uses only the standard
// library, so that any reader may include it. The format is little-endian, without padding:
//   8 bytes  "GWGRAD01"
//   records  u32 name bytes, name, u32 point, u64 count, count x f32      until the end of the file
// Points count from 0 in the order of training; a point holds every tensor once, in the order of the forward pass.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <ios>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gradient_dump {

static_assert(std::endian::native == std::endian::little,
              "the file is little-endian, and so are its reader and writer");

inline constexpr std::string_view kMagic = "GWGRAD01";
inline constexpr std::uint32_t kMaxNameBytes = 4096;

struct Record {
  std::string name;
  std::uint32_t point = 0;
  std::vector<float> values;
};

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

/// Reads a whole file. Throws std::runtime_error that names the file and the record, also for a file that ends early.
[[nodiscard]] inline std::vector<Record> read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw std::runtime_error("cannot read gradients from " + path);
  }
  in.seekg(0, std::ios::end);
  const auto file_bytes = static_cast<std::uint64_t>(in.tellg());
  in.seekg(0);
  std::vector<Record> records;
  const auto take = [&](void* to, std::uint64_t bytes) {
    if (!in.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) {
      throw std::runtime_error(path + ": ends inside record " + std::to_string(records.size()));
    }
  };
  std::array<char, kMagic.size()> magic{};
  take(magic.data(), magic.size());
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
    throw std::runtime_error(path + ": not a file of gradients (it does not start with " + std::string(kMagic) + ")");
  }
  while (in.peek() != std::ifstream::traits_type::eof()) {
    Record record;
    std::uint32_t name_bytes = 0;
    std::uint64_t count = 0;
    take(&name_bytes, sizeof name_bytes);
    if (name_bytes > kMaxNameBytes) {
      throw std::runtime_error(path + ": record " + std::to_string(records.size()) + " has a name of " +
                               std::to_string(name_bytes) + " bytes; damaged?");
    }
    record.name.resize(name_bytes);
    take(record.name.data(), name_bytes);
    take(&record.point, sizeof record.point);
    take(&count, sizeof count);
    if (count > file_bytes / sizeof(float)) {
      throw std::runtime_error(path + ": record " + std::to_string(records.size()) + " (" + record.name + ") claims " +
                               std::to_string(count) + " values, more than the file holds");
    }
    record.values.resize(count);
    take(record.values.data(), count * sizeof(float));
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace gradient_dump
