#include "table/table_file.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
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
constexpr std::size_t kPieceBytes = 1 << 20;   // written or read at once
constexpr std::size_t kCrcBytes = sizeof(std::uint32_t);
constexpr std::size_t kPackedEnd = sizeof(std::uint64_t);  // of a packed file: bytes of its pieces, before the checksum

std::string file_name(const std::string& table, int rank, int world_size) {
  return table + "-rank-" + std::to_string(rank) + "-of-" + std::to_string(world_size) + std::string(kExtension);
}

// Collects bytes for a stream, and their checksum.
class FileWriter {
 public:
  explicit FileWriter(std::ostream& stream) : stream_(stream) {}

  wire::Bytes& bytes() noexcept { return bytes_; }
  void flush_if_large() {
    if (bytes_.size() >= kPieceBytes) {
      flush();
    }
  }
  void flush() {
    crc_ = wire::crc32c(bytes_, crc_);
    stream_.write(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
    bytes_.clear();
  }
  [[nodiscard]] std::uint32_t crc() const noexcept { return crc_; }

 private:
  std::ostream& stream_;
  wire::Bytes bytes_;
  std::uint32_t crc_ = 0;
};

void write(std::ostream& stream, const FileHead& head, const Shard& rows) {
  FileWriter out(stream);
  wire::put(out.bytes(), kMagic.data(), kMagic.size() + 1);
  wire::put_number(out.bytes(), head.packed ? kPackedVersion : kVersion);
  wire::put_text(out.bytes(), head.name);
  wire::put_number(out.bytes(), static_cast<std::uint32_t>(head.rank));
  wire::put_number(out.bytes(), static_cast<std::uint32_t>(head.world_size));
  wire::put_number(out.bytes(), head.rows);
  wire::put_number(out.bytes(), head.width);
  wire::put_number(out.bytes(), static_cast<std::uint32_t>(head.optimizer));
  wire::put_number(out.bytes(), head.save.clock);
  wire::put_number(out.bytes(), head.save.number);
  wire::put_number(out.bytes(), rows.rows());
  std::uint64_t packed_bytes = 0;
  codec::PieceWriter pieces([&](std::span<const std::byte> piece) {
    packed_bytes += piece.size();
    wire::put(out.bytes(), piece.data(), piece.size());
    out.flush_if_large();
  });
  const auto put = [&](std::span<const std::byte> values) {
    if (head.packed) {
      pieces.put(values, sizeof(float));
    } else {
      wire::put(out.bytes(), values.data(), values.size());
    }
  };
  rows.visit(rows.ids(), [&](const Shard::Row& row) {
    put(std::as_bytes(std::span(&row.id, 1)));
    put(std::as_bytes(row.values));
    put(std::as_bytes(row.accumulators));
    out.flush_if_large();
  });
  if (head.packed) {
    pieces.flush();
    wire::put_number(out.bytes(), packed_bytes);
  }
  out.flush();
  wire::put_number(out.bytes(), out.crc());
  out.flush();
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

/// Checks that this is the beginning of a file that this build reads; returns whether its rows are packed.
bool check_begin(wire::ByteReader& in) {
  if (!wire::as_text(in.take(kMagic.size() + 1)).starts_with(kMagic)) {
    in.fail("it is no saved table of gradwire");
  }
  const auto version = in.number<std::uint32_t>();
  if (version != kVersion && version != kPackedVersion) {
    throw Error(ErrorCode::unsupported, in.source() + ": is of version " + std::to_string(version) +
                                            " of the format; this build reads versions " + std::to_string(kVersion) +
                                            " and " + std::to_string(kPackedVersion));
  }
  return version == kPackedVersion;
}

/// Reads the next `left` bytes of a file in large pieces.
class FileBytes {
 public:
  FileBytes(RegularFile& file, std::uint64_t left, const std::string& name) : file_(file), left_(left), name_(name) {}

  [[nodiscard]] std::uint64_t left() const noexcept { return left_ + piece_.size() - at_; }
  void take(std::span<std::byte> to) {
    for (std::size_t done = 0; done < to.size();) {
      if (at_ == piece_.size()) {
        piece_.resize(std::min<std::uint64_t>(left_, kPieceBytes));
        piece_.resize(file_.read(piece_.data(), piece_.size()));
        left_ -= piece_.size();
        at_ = 0;
        if (piece_.empty()) {
          throw Error(ErrorCode::corrupt, name_ + ": it ends too early");
        }
      }
      const std::size_t bytes = std::min(to.size() - done, piece_.size() - at_);
      std::memcpy(to.data() + done, piece_.data() + at_, bytes);
      done += bytes;
      at_ += bytes;
    }
  }

 private:
  RegularFile& file_;
  std::uint64_t left_;
  const std::string& name_;
  wire::Bytes piece_;
  std::size_t at_ = 0;
};

/// Rows that remain to be read, of a file that stands behind its head.
struct RowsToRead {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  bool packed = false;
  int rank = 0;  // of the world that saved them
};

/// Visits each row of a file as (id, its floats).
template <class Visit>
void read_rows(RegularFile& file, const wire::ByteReader& head, const RowsToRead& rows, const FileHead& expected,
               const HashRing& ring, Visit visit) {
  const std::size_t per_row = row_floats(expected.optimizer, expected.width);
  std::vector<std::byte> row(sizeof(std::uint64_t) + per_row * sizeof(float));
  if (!rows.packed && rows.count > rows.bytes / row.size()) {
    head.fail("it says " + std::to_string(rows.count) + " rows but has " + std::to_string(rows.bytes) + " bytes");
  }
  FileBytes bytes(file, rows.bytes, head.source());
  codec::PieceReader pieces([&](std::span<std::byte> to) { bytes.take(to); }, head.source(), "; use another copy");
  std::uint64_t next = 0;  // the least possible next id
  std::vector<float> floats(per_row);
  for (std::uint64_t i = 0; i < rows.count; ++i) {
    if (rows.packed) {
      pieces.read(row);
    } else {
      bytes.take(row);
    }
    std::uint64_t id = 0;
    std::memcpy(&id, row.data(), sizeof id);
    if (id >= expected.rows || id < next) {
      head.fail("row " + std::to_string(id) + " is out of place");
    }
    next = id + 1;
    if (ring.owner(id) != rows.rank) {
      throw Error(ErrorCode::mismatch, head.source() + ": row " + std::to_string(id) + " belongs to rank " +
                                           std::to_string(ring.owner(id)) +
                                           " of the world that saved it, by this build's shares; load it with the "
                                           "build that saved it");
    }
    std::memcpy(floats.data(), row.data() + sizeof id, per_row * sizeof(float));
    visit(id, std::span<const float>(floats));
  }
  if (pieces.left() > 0) {
    head.fail("it has more rows than the " + std::to_string(rows.count) + " that it says");
  }
  if (bytes.left() > 0) {
    head.fail(std::to_string(bytes.left()) + " bytes too many");
  }
}

/// The length of a file with this beginning, and with this number at the end if it is packed; no value if it is no such
/// file, for which the other reader gives the error.
std::optional<std::uint64_t> length_of(std::span<const std::byte> begin, std::uint64_t packed_bytes,
                                       const std::string& file) {
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
  const std::uint64_t units = packed ? packed_bytes : rows;
  const std::uint64_t unit =
      packed ? 1 : sizeof(std::uint64_t) + row_floats(head.optimizer, head.width) * sizeof(float);
  const std::uint64_t others = begin.size() - in.left() + (packed ? kPackedEnd : 0) + kCrcBytes;
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() - others;
  return units > most / unit ? std::numeric_limits<std::uint64_t>::max() : others + units * unit;
}

/// A file whose checksum is right, to be read from behind its head.
struct OpenFile {
  RegularFile file;
  wire::Bytes begin;  // with the head
};

/// Returns the number before the checksum.
std::uint64_t packed_bytes_of(RegularFile& file) {
  constexpr std::size_t kEnd = kPackedEnd + kCrcBytes;
  std::uint64_t bytes = 0;
  if (file.size() >= kEnd) {
    file.seek(file.size() - kEnd);
    static_cast<void>(file.read(&bytes, sizeof bytes));
  }
  return bytes;
}

/// Checks the file's length first: a sparse file could otherwise take very long.
void check_file(OpenFile& open, const std::string& path) {
  RegularFile& file = open.file;
  open.begin.resize(std::min<std::uint64_t>(file.size(), kLongestHead));
  open.begin.resize(file.read(open.begin.data(), open.begin.size()));
  const auto length = length_of(open.begin, packed_bytes_of(file), path);
  if (length && *length != file.size()) {
    throw Error(ErrorCode::corrupt, path + ": has " + std::to_string(file.size()) + " bytes where its rows make " +
                                        std::to_string(*length) + "; use another copy");
  }
  wire::ByteReader in(open.begin, path);
  static_cast<void>(check_begin(in));
  if (file.size() < open.begin.size() - in.left() + kCrcBytes) {
    in.fail("it ends too early");
  }
  std::uint32_t crc = 0;
  wire::Bytes piece;
  file.seek(0);
  for (std::uint64_t left = file.size() - kCrcBytes; left > 0; left -= piece.size()) {
    piece.resize(std::min<std::uint64_t>(left, kPieceBytes));
    piece.resize(file.read(piece.data(), piece.size()));
    if (piece.empty()) {
      in.fail("it ends too early");
    }
    crc = wire::crc32c(piece, crc);
  }
  piece.resize(kCrcBytes);
  piece.resize(file.read(piece.data(), piece.size()));
  if (wire::ByteReader(piece, path).number<std::uint32_t>() != crc) {
    in.fail("it is damaged: its checksum is wrong; use another copy");
  }
}

/// The error for a file of `world` that cannot be read.
Error missing_file(const Error& error, int world) {
  if (error.code() != ErrorCode::invalid_argument) {
    return error;
  }
  return {error.code(),
          std::string(error.what()) + "; load() needs the files of all " + std::to_string(world) + " ranks that saved"};
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

std::unique_ptr<DurableFile> make_table_file(const FileHead& head, const Shard& rows,
                                             const std::filesystem::path& directory) {
  if (head.packed) {
    codec::require_packing();
  }
  return std::make_unique<DurableFile>(directory, file_name(head.name, head.rank, head.world_size),
                                       [&](std::ostream& stream) { write(stream, head, rows); });
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
                          const std::optional<SaveId>& save, const std::function<void(const Shard::Row&)>& take) {
  const int world = saved_world(head.name, directory);
  const bool same = world == head.world_size;
  const HashRing saved(world);
  const HashRing here(head.world_size);
  FileRows result;
  std::vector<std::string> saves;
  for (int rank = same ? head.rank : 0; rank < (same ? head.rank + 1 : world); ++rank) {
    result.path = directory / file_name(head.name, rank, world);
    if (save && save_in(result.path) != save && save_in(previous_of(result.path)) == save) {
      result.path = previous_of(result.path);
    }
    const std::string path = result.path.string();
    try {
      OpenFile open{.file = RegularFile(result.path, "table"), .begin = {}};
      check_file(open, path);
      wire::ByteReader in(open.begin, path);
      const bool packed = check_begin(in);
      result.save = check_head(in, head, rank, world, path);
      saves.push_back(to_text(result.save, result.path));
      const auto count = in.number<std::uint64_t>();
      const std::uint64_t begin = open.begin.size() - in.left();
      open.file.seek(begin);
      const std::uint64_t end = open.file.size() - kCrcBytes - (packed ? kPackedEnd : 0);
      read_rows(open.file, in, {.count = count, .bytes = end - begin, .packed = packed, .rank = rank}, head, saved,
                [&](std::uint64_t id, std::span<const float> floats) {
                  if (here.owner(id) == head.rank) {
                    take({.id = id, .values = floats.first(head.width), .accumulators = floats.subspan(head.width)});
                  }
                });
    } catch (const Error& error) {
      throw missing_file(error, world);
    }
  }
  compare_saves(saves);
  return result;
}

}  // namespace gradwire::table
