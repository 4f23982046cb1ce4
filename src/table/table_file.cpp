#include "table/table_file.hpp"

#include <charconv>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <span>
#include <string_view>
#include <system_error>

#include "base/durable_file.hpp"
#include "table/bytes.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::table {
namespace {

constexpr std::string_view kMagic = "gwtable";  // and its final zero
constexpr std::uint32_t kVersion = 2;
constexpr std::string_view kExtension = ".gwtable";

std::string file_name(const std::string& table, int rank, int world_size) {
  return table + "-rank-" + std::to_string(rank) + "-of-" + std::to_string(world_size) + std::string(kExtension);
}

Bytes encode(const FileHead& head, const std::vector<Shard::Row>& rows) {
  Bytes bytes;
  put(bytes, kMagic.data(), kMagic.size() + 1);
  put_number(bytes, kVersion);
  put_number(bytes, static_cast<std::uint32_t>(head.name.size()));
  put(bytes, head.name.data(), head.name.size());
  put_number(bytes, static_cast<std::uint32_t>(head.rank));
  put_number(bytes, static_cast<std::uint32_t>(head.world_size));
  put_number(bytes, head.rows);
  put_number(bytes, head.width);
  put_number(bytes, static_cast<std::uint32_t>(head.optimizer));
  put_number(bytes, head.save.clock);
  put_number(bytes, head.save.number);
  put_number(bytes, static_cast<std::uint64_t>(rows.size()));
  for (const Shard::Row& row : rows) {
    put_number(bytes, row.id);
    put(bytes, row.values.data(), row.values.size_bytes());
    put(bytes, row.accumulators.data(), row.accumulators.size_bytes());
  }
  put_number(bytes, wire::crc32c(bytes));
  return bytes;
}

std::string to_string(RowOptimizer optimizer) { return optimizer == RowOptimizer::sgd ? "sgd" : "adagrad"; }

/// Checks that the file is what its name and the table say; returns whose save it is.
SaveId check_head(Reader& in, const FileHead& expected, int rank, int world_size, const std::string& file) {
  const auto expect = [&](const std::string& what, const std::string& found, const std::string& wanted) {
    if (found != wanted) {
      throw Error(ErrorCode::mismatch,
                  file + ": " + what + " is " + found + ", here it is " + wanted + "; load the files of this table");
    }
  };
  const auto name = in.take(in.number<std::uint32_t>());
  expect("the table's name", {reinterpret_cast<const char*>(name.data()), name.size()}, expected.name);
  expect("the rank", std::to_string(in.number<std::uint32_t>()), std::to_string(rank));
  expect("the world size", std::to_string(in.number<std::uint32_t>()), std::to_string(world_size));
  expect("the number of rows", std::to_string(in.number<std::uint64_t>()), std::to_string(expected.rows));
  expect("the width of rows", std::to_string(in.number<std::uint32_t>()), std::to_string(expected.width));
  expect("the optimizer", to_string(in.number<std::uint32_t>() == 0 ? RowOptimizer::sgd : RowOptimizer::adagrad),
         to_string(expected.optimizer));
  const auto clock = in.number<std::uint64_t>();
  return {.clock = clock, .number = in.number<std::uint64_t>()};
}

FileRows decode(const Bytes& bytes, const FileHead& expected, int rank, int world_size, const std::string& file) {
  Reader in(bytes, file);
  const auto magic = in.take(kMagic.size() + 1);
  if (std::string_view(reinterpret_cast<const char*>(magic.data()), kMagic.size()) != kMagic) {
    in.fail("it is no saved table of gradwire");
  }
  const auto version = in.number<std::uint32_t>();
  if (version != kVersion) {
    throw Error(ErrorCode::unsupported, file + ": is of version " + std::to_string(version) +
                                            " of the format; this build reads version " + std::to_string(kVersion));
  }
  std::uint32_t crc = 0;
  if (bytes.size() < sizeof crc + kMagic.size() + 1) {
    in.fail("it ends too early");
  }
  const std::span<const std::byte> content = std::span(bytes).first(bytes.size() - sizeof crc);
  std::memcpy(&crc, bytes.data() + content.size(), sizeof crc);
  if (crc != wire::crc32c(content)) {
    in.fail("it is damaged: its checksum is wrong; use another copy");
  }
  FileRows result{.path = file, .save = check_head(in, expected, rank, world_size, file), .memory = {}, .rows = {}};
  const std::size_t parts = expected.optimizer == RowOptimizer::adagrad ? 2 : 1;
  const std::size_t row_bytes = sizeof(std::uint64_t) + parts * expected.width * sizeof(float);
  const auto count = in.number<std::uint64_t>();
  if (count > in.left() / row_bytes) {
    in.fail("it says " + std::to_string(count) + " rows but has " + std::to_string(in.left()) + " bytes");
  }
  result.memory.resize(count * parts * expected.width);
  for (std::size_t i = 0; i < count; ++i) {
    Shard::Row row{.id = in.number<std::uint64_t>(), .values = {}, .accumulators = {}};
    if (row.id >= expected.rows || (i > 0 && row.id <= result.rows.back().id)) {
      in.fail("row " + std::to_string(row.id) + " is out of place");
    }
    const std::span<float> memory =
        std::span(result.memory).subspan(i * parts * expected.width, parts * expected.width);
    std::memcpy(memory.data(), in.take(memory.size_bytes()).data(), memory.size_bytes());
    row.values = memory.first(expected.width);
    row.accumulators = memory.subspan(expected.width);
    result.rows.push_back(row);
  }
  in.take(sizeof crc);
  in.expect_end();
  return result;
}

/// The size of the world that saved this table there.
int saved_world(const std::string& table, const std::filesystem::path& directory) {
  std::error_code error;
  std::set<int> worlds;
  const std::string begin = table + "-rank-";
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::size_t of = name.rfind("-of-");
    int world = 0;
    if (name.starts_with(begin) && name.ends_with(kExtension) && of != std::string::npos &&
        std::from_chars(name.data() + of + 4, name.data() + name.size() - kExtension.size(), world).ec == std::errc() &&
        world > 0) {
      worlds.insert(world);
    }
  }
  if (worlds.size() != 1) {
    throw Error(ErrorCode::invalid_argument,
                directory.string() + ": holds " + (worlds.empty() ? "no" : "more than one world's") +
                    " files of table \"" + table + "\" (" + begin + "R-of-N" + std::string(kExtension) +
                    "); name a directory that one save() wrote to" + (error ? " (" + error.message() + ")" : ""));
  }
  return *worlds.begin();
}

}  // namespace

void write_table_file(const FileHead& head, const std::vector<Shard::Row>& rows,
                      const std::filesystem::path& directory) {
  const Bytes bytes = encode(head, rows);
  write_durably(directory, file_name(head.name, head.rank, head.world_size), [&](std::ostream& stream) {
    stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  });
}

std::vector<FileRows> read_table_files(const FileHead& head, const std::filesystem::path& directory) {
  const int world = saved_world(head.name, directory);
  const bool same = world == head.world_size;
  std::vector<FileRows> files;
  for (int rank = same ? head.rank : 0; rank < (same ? head.rank + 1 : world); ++rank) {
    const std::filesystem::path path = directory / file_name(head.name, rank, world);
    std::ifstream stream(path, std::ios::binary);
    if (!stream) {
      throw Error(ErrorCode::invalid_argument, path.string() + ": cannot be read; load() needs the files of all " +
                                                   std::to_string(world) + " ranks that saved");
    }
    const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    Bytes bytes;
    put(bytes, text.data(), text.size());
    files.push_back(decode(bytes, head, rank, world, path.string()));
  }
  std::vector<std::string> saves;
  for (const FileRows& file : files) {
    saves.push_back(to_text(file.save, file.path));
  }
  compare_saves(saves);
  return files;
}

SaveId new_save_id(std::uint64_t clock) {
  std::random_device random;
  const std::uint64_t high = random();
  return {.clock = clock, .number = high << 32U | random()};
}

std::string to_text(const SaveId& save, const std::filesystem::path& file) {
  Bytes bytes;
  put_number(bytes, save.clock);
  put_number(bytes, save.number);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) + file.string();
}

SaveId save_of(const std::string& text, int peer) {
  Reader in(std::as_bytes(std::span(text)), "what rank " + std::to_string(peer) + " said of a saved table");
  const auto clock = in.number<std::uint64_t>();
  return {.clock = clock, .number = in.number<std::uint64_t>()};
}

void compare_saves(const std::vector<std::string>& texts) {
  for (std::size_t i = 1; i < texts.size(); ++i) {
    const SaveId first = save_of(texts[0], 0);
    const SaveId other = save_of(texts[i], static_cast<int>(i));
    if (first == other) {
      continue;
    }
    const auto describe = [](const std::string& text, const SaveId& save) {
      return text.substr(sizeof save) + " (clock " + std::to_string(save.clock) + ")";
    };
    throw Error(ErrorCode::mismatch, describe(texts[0], first) + " and " + describe(texts[i], other) +
                                         " are of different saves; use a directory that one save() wrote as a whole");
  }
}

}  // namespace gradwire::table
