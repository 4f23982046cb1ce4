#include "table/table_file.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <span>
#include <string_view>
#include <system_error>

#include "base/regular_file.hpp"
#include "codec/packed_pieces.hpp"
#include "table/hash_ring.hpp"
#include "table/row_options.hpp"
#include "wire/bytes.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::table {
namespace {

constexpr std::string_view kMagic = "gwtable";  // and its final zero
constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kPackedVersion = 3;
constexpr std::string_view kExtension = ".gwtable";
constexpr std::size_t kRankAndWorld = 8;       // bytes of both
constexpr std::size_t kLayout = 16;            // of rows, width, optimizer
constexpr std::size_t kLongestHead = 1 << 12;  // a name has up to 128 letters

std::string file_name(const std::string& table, int rank, int world_size) {
  return table + "-rank-" + std::to_string(rank) + "-of-" + std::to_string(world_size) + std::string(kExtension);
}

// Puts the rows, each as its id and floats, through `put`.
template <class Put>
void for_each_span(const std::vector<Shard::Row>& rows, Put put) {
  for (const Shard::Row& row : rows) {
    put(std::as_bytes(std::span(&row.id, 1)));
    put(std::as_bytes(row.values));
    put(std::as_bytes(row.accumulators));
  }
}

void put_packed(wire::Bytes& bytes, const std::vector<Shard::Row>& rows) {
  const std::size_t at = bytes.size();
  wire::put_number(bytes, std::uint64_t{0});
  codec::PieceWriter pieces([&](std::span<const std::byte> piece) { wire::put(bytes, piece.data(), piece.size()); });
  for_each_span(rows, [&](std::span<const std::byte> span) { pieces.put(span, sizeof(float)); });
  pieces.flush();
  const std::uint64_t size = bytes.size() - at - sizeof size;
  std::memcpy(bytes.data() + at, &size, sizeof size);
}

wire::Bytes encode(const FileHead& head, const std::vector<Shard::Row>& rows) {
  wire::Bytes bytes;
  wire::put(bytes, kMagic.data(), kMagic.size() + 1);
  wire::put_number(bytes, head.packed ? kPackedVersion : kVersion);
  wire::put_text(bytes, head.name);
  wire::put_number(bytes, static_cast<std::uint32_t>(head.rank));
  wire::put_number(bytes, static_cast<std::uint32_t>(head.world_size));
  wire::put_number(bytes, head.rows);
  wire::put_number(bytes, head.width);
  wire::put_number(bytes, static_cast<std::uint32_t>(head.optimizer));
  wire::put_number(bytes, head.save.clock);
  wire::put_number(bytes, head.save.number);
  wire::put_number(bytes, static_cast<std::uint64_t>(rows.size()));
  if (head.packed) {
    put_packed(bytes, rows);
  } else {
    for_each_span(rows, [&](std::span<const std::byte> span) { wire::put(bytes, span.data(), span.size()); });
  }
  wire::put_number(bytes, wire::crc32c(bytes));
  return bytes;
}

/// Checks that the file fits its name and the table; returns the save that it belongs to.
SaveId check_head(wire::ByteReader& in, const FileHead& expected, int rank, int world_size, const std::string& file) {
  const auto expect = [&](const std::string& what, const std::string& found, const std::string& wanted) {
    if (found != wanted) {
      throw Error(ErrorCode::mismatch,
                  file + ": " + what + " is " + found + ", here it is " + wanted + "; load the files of this table");
    }
  };
  expect("the table's name", in.text(), expected.name);
  expect("the rank", std::to_string(in.number<std::uint32_t>()), std::to_string(rank));
  expect("the world size", std::to_string(in.number<std::uint32_t>()), std::to_string(world_size));
  expect("the number of rows", std::to_string(in.number<std::uint64_t>()), std::to_string(expected.rows));
  expect("the width of rows", std::to_string(in.number<std::uint32_t>()), std::to_string(expected.width));
  expect("the optimizer", name_of(in.number<std::uint32_t>() == 0 ? RowOptimizer::sgd : RowOptimizer::adagrad),
         name_of(expected.optimizer));
  return read_save(in);
}

/// The save that a file belongs to, by its head alone; no value if it is no such file or cannot be read.
std::optional<SaveId> save_in(const std::filesystem::path& file) {
  try {
    RegularFile stream(file, "table");
    wire::Bytes begin(kLongestHead);
    begin.resize(stream.read(begin.data(), begin.size()));
    wire::ByteReader head(begin, file.string());
    if (!wire::as_text(head.take(kMagic.size() + 1)).starts_with(kMagic)) {
      return std::nullopt;
    }
    head.take(sizeof(std::uint32_t));  // version
    static_cast<void>(head.text());
    head.take(kRankAndWorld + kLayout);
    return read_save(head);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// A file that is not damaged, whose head and rows remain to be read.
struct OpenFile {
  wire::ByteReader content;
  bool packed;
};

OpenFile open_file(const wire::Bytes& bytes, const std::string& file) {
  wire::ByteReader in(bytes, file);
  if (!wire::as_text(in.take(kMagic.size() + 1)).starts_with(kMagic)) {
    in.fail("it is no saved table of gradwire");
  }
  const auto version = in.number<std::uint32_t>();
  if (version != kVersion && version != kPackedVersion) {
    throw Error(ErrorCode::unsupported, file + ": is of version " + std::to_string(version) +
                                            " of the format; this build reads versions " + std::to_string(kVersion) +
                                            " and " + std::to_string(kPackedVersion));
  }
  constexpr std::size_t kCrcBytes = sizeof(std::uint32_t);
  const std::size_t begin = bytes.size() - in.left();
  if (in.left() < kCrcBytes) {
    in.fail("it ends too early");
  }
  const std::span<const std::byte> content = std::span(bytes).first(bytes.size() - kCrcBytes);
  wire::ByteReader end{std::span(bytes).last(kCrcBytes), file};
  if (end.number<std::uint32_t>() != wire::crc32c(content)) {
    in.fail("it is damaged: its checksum is wrong; use another copy");
  }
  return {{content.subspan(begin), file}, version == kPackedVersion};
}

/// Visits each row of a file as (id, its floats), after the head.
template <class Visit>
void read_rows(OpenFile& file, const FileHead& expected, const HashRing& ring, int rank, Visit visit) {
  wire::ByteReader& in = file.content;
  const auto count = in.number<std::uint64_t>();
  std::vector<std::byte> row(sizeof(std::uint64_t) + row_floats(expected.optimizer, expected.width) * sizeof(float));
  if (file.packed) {
    in.take(sizeof(std::uint64_t));  // bytes of the pieces
  } else if (count > in.left() / row.size()) {
    in.fail("it says " + std::to_string(count) + " rows but has " + std::to_string(in.left()) + " bytes");
  }
  codec::PieceReader pieces([&](std::span<std::byte> to) { in.numbers(to); }, in.source(), "; use another copy");
  std::uint64_t next = 0;  // the least possible next id
  for (std::uint64_t i = 0; i < count; ++i) {
    if (file.packed) {
      pieces.read(row);
    } else {
      in.numbers(std::span(row));
    }
    std::uint64_t id = 0;
    std::memcpy(&id, row.data(), sizeof id);
    if (id >= expected.rows || id < next) {
      in.fail("row " + std::to_string(id) + " is out of place");
    }
    next = id + 1;
    if (ring.owner(id) != rank) {
      throw Error(ErrorCode::mismatch, in.source() + ": row " + std::to_string(id) + " belongs to rank " +
                                           std::to_string(ring.owner(id)) +
                                           " of the world that saved it, by this build's shares; load it with the "
                                           "build that saved it");
    }
    visit(id, std::span<const std::byte>(row).subspan(sizeof id));
  }
  if (pieces.left() > 0) {
    in.fail("it has more rows than the " + std::to_string(count) + " that it says");
  }
  in.expect_end();
}

/// The length of a file with this beginning; no value if it is no such file, for which the other reader gives the
/// error.
std::optional<std::uint64_t> length_of(std::span<const std::byte> begin, const std::string& file) {
  wire::ByteReader in(begin, file);
  if (!wire::as_text(in.take(kMagic.size() + 1)).starts_with(kMagic)) {
    return std::nullopt;
  }
  const auto version = in.number<std::uint32_t>();
  if (version != kVersion && version != kPackedVersion) {
    return std::nullopt;
  }
  static_cast<void>(in.text());
  in.take(kRankAndWorld);
  FileHead head{.name = {}};
  head.rows = in.number<std::uint64_t>();
  head.width = in.number<std::uint32_t>();
  head.optimizer = in.number<std::uint32_t>() == 0 ? RowOptimizer::sgd : RowOptimizer::adagrad;
  static_cast<void>(read_save(in));
  const auto rows = in.number<std::uint64_t>();
  const bool packed = version == kPackedVersion;
  const std::uint64_t row = packed ? 1 : sizeof(std::uint64_t) + row_floats(head.optimizer, head.width) * sizeof(float);
  const std::uint64_t units = packed ? in.number<std::uint64_t>() : rows;
  const std::uint64_t before = begin.size() - in.left() + sizeof(std::uint32_t);  // and the checksum
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() - before;
  return units > most / row ? std::numeric_limits<std::uint64_t>::max() : before + units * row;
}

/// Reads the whole file if its length is the one in its head: a sparse file could otherwise take all memory.
wire::Bytes read_file(const std::filesystem::path& path, int world) {
  try {
    RegularFile file(path, "table");
    wire::Bytes bytes(std::min<std::uint64_t>(file.size(), kLongestHead));
    bytes.resize(file.read(bytes.data(), bytes.size()));
    const auto length = length_of(bytes, path.string());
    if (!length) {
      return bytes;
    }
    if (*length != file.size()) {
      throw Error(ErrorCode::corrupt, path.string() + ": has " + std::to_string(file.size()) +
                                          " bytes where its rows make " + std::to_string(*length) +
                                          "; use another copy");
    }
    const std::size_t begun = bytes.size();
    bytes.resize(*length);
    bytes.resize(begun + file.read(bytes.data() + begun, bytes.size() - begun));
    return bytes;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) {
      throw;
    }
    throw Error(error.code(), std::string(error.what()) + "; load() needs the files of all " + std::to_string(world) +
                                  " ranks that saved");
  }
}

/// The size of the world that saved this table in `directory`.
int saved_world(const std::string& table, const std::filesystem::path& directory) {
  std::error_code error;
  std::set<int> worlds;
  const std::string begin = table + "-rank-";
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = current_of(entry->path().filename().string());
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

/// The saves of one rank's files, the latest first.
std::vector<SaveId> saves_of(int rank, int world, const std::string& table, const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / file_name(table, rank, world);
  std::vector<SaveId> saves;
  for (const auto& save : {save_in(file), save_in(previous_of(file))}) {
    if (save) {
      saves.push_back(*save);
    }
  }
  return saves;
}

}  // namespace

std::unique_ptr<DurableFile> make_table_file(const FileHead& head, const std::vector<Shard::Row>& rows,
                                             const std::filesystem::path& directory) {
  if (head.packed) {
    codec::require_packing();
  }
  const wire::Bytes bytes = encode(head, rows);
  return std::make_unique<DurableFile>(
      directory, file_name(head.name, head.rank, head.world_size), [&](std::ostream& stream) {
        stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      });
}

std::vector<SaveId> own_saves(const FileHead& head, const std::filesystem::path& directory) {
  return saves_of(head.rank, head.world_size, head.name, directory);
}

std::vector<SaveId> saves_in(const FileHead& head, const std::filesystem::path& directory) {
  const int world = saved_world(head.name, directory);
  if (world == head.world_size) {
    return own_saves(head, directory);
  }
  std::vector<SaveId> saves = saves_of(0, world, head.name, directory);
  for (int rank = 1; rank < world && !saves.empty(); ++rank) {
    const std::vector<SaveId> here = saves_of(rank, world, head.name, directory);
    std::erase_if(saves, [&](const SaveId& save) { return std::find(here.begin(), here.end(), save) == here.end(); });
  }
  return saves;
}

FileRows read_table_files(const FileHead& head, const std::filesystem::path& directory,
                          const std::optional<SaveId>& save) {
  const int world = saved_world(head.name, directory);
  const bool same = world == head.world_size;
  const HashRing saved(world);
  const HashRing here(head.world_size);
  const std::size_t per_row = row_floats(head.optimizer, head.width);
  FileRows result;
  std::vector<std::uint64_t> ids;
  std::vector<std::string> saves;
  for (int rank = same ? head.rank : 0; rank < (same ? head.rank + 1 : world); ++rank) {
    result.path = directory / file_name(head.name, rank, world);
    if (save && save_in(result.path) != save && save_in(previous_of(result.path)) == save) {
      result.path = previous_of(result.path);
    }
    const wire::Bytes bytes = read_file(result.path, world);
    OpenFile in = open_file(bytes, result.path.string());
    result.save = check_head(in.content, head, rank, world, result.path.string());
    saves.push_back(to_text(result.save, result.path));
    read_rows(in, head, saved, rank, [&](std::uint64_t id, std::span<const std::byte> floats) {
      if (here.owner(id) == head.rank) {
        ids.push_back(id);
        const std::size_t at = result.memory.size();
        result.memory.resize(at + per_row);
        std::memcpy(result.memory.data() + at, floats.data(), floats.size());
      }
    });
  }
  compare_saves(saves);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::span<const float> memory = std::span(result.memory).subspan(i * per_row, per_row);
    result.rows.push_back(
        {.id = ids[i], .values = memory.first(head.width), .accumulators = memory.subspan(head.width)});
  }
  return result;
}

}  // namespace gradwire::table
