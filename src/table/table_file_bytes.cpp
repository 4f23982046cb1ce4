#include "table/table_file_bytes.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "base/regular_file.hpp"
#include "codec/packed_pieces.hpp"
#include "table/row_options.hpp"
#include "wire/bytes.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::table {
namespace {

constexpr std::string_view kMagic = "gwtable";  // and its final zero
constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kPackedVersion = 3;
constexpr std::size_t kLongestHead = 1 << 12;  // a name has up to 128 letters
constexpr std::size_t kPieceBytes = 1 << 20;   // written or read at once
constexpr std::size_t kCrcBytes = sizeof(std::uint32_t);
constexpr std::size_t kPackedEnd = sizeof(std::uint64_t);  // of a packed file: bytes of its pieces, before the checksum

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

bool has_magic(wire::ByteReader& in) { return wire::as_text(in.take(kMagic.size() + 1)).starts_with(kMagic); }

/// Reads what follows the version, up to the number of rows that the file has.
FileHead read_head(wire::ByteReader& in, std::uint32_t version) {
  FileHead head{.name = in.text()};
  head.rank = static_cast<int>(in.number<std::uint32_t>());
  head.world_size = static_cast<int>(in.number<std::uint32_t>());
  head.rows = in.number<std::uint64_t>();
  head.width = in.number<std::uint32_t>();
  head.optimizer = in.number<std::uint32_t>() == 0 ? RowOptimizer::sgd : RowOptimizer::adagrad;
  head.save = read_save(in);
  head.packed = version == kPackedVersion;
  return head;
}

/// Checks that the file fits its name and the table.
void check_head(const FileHead& found, const FileHead& expected, const std::string& file) {
  const auto expect = [&](const std::string& what, const std::string& there, const std::string& here) {
    if (there != here) {
      throw Error(ErrorCode::mismatch,
                  file + ": " + what + " is " + there + ", here it is " + here + "; load the files of this table");
    }
  };
  expect("the table's name", found.name, expected.name);
  expect("the rank", std::to_string(found.rank), std::to_string(expected.rank));
  expect("the world size", std::to_string(found.world_size), std::to_string(expected.world_size));
  expect("the number of rows", std::to_string(found.rows), std::to_string(expected.rows));
  expect("the width of rows", std::to_string(found.width), std::to_string(expected.width));
  expect("the optimizer", name_of(found.optimizer), name_of(expected.optimizer));
}

/// Checks that this is the beginning of a file that this build reads; returns its version.
std::uint32_t check_begin(wire::ByteReader& in) {
  if (!has_magic(in)) {
    in.fail("it is no saved table of gradwire");
  }
  const auto version = in.number<std::uint32_t>();
  if (version != kVersion && version != kPackedVersion) {
    throw Error(ErrorCode::unsupported, in.source() + ": is of version " + std::to_string(version) +
                                            " of the format; this build reads versions " + std::to_string(kVersion) +
                                            " and " + std::to_string(kPackedVersion));
  }
  return version;
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

/// Visits each row of a file as (id, its floats). `count` rows take all of `bytes`; `in` is for messages.
template <class Visit>
void read_rows(FileBytes& bytes, const wire::ByteReader& in, const FileHead& head, std::uint64_t count,
               const HashRing& shares, Visit visit) {
  const std::size_t per_row = row_floats(head.optimizer, head.width);
  std::vector<std::byte> row(sizeof(std::uint64_t) + per_row * sizeof(float));
  codec::PieceReader pieces([&](std::span<std::byte> to) { bytes.take(to); }, in.source(), "; use another copy");
  std::uint64_t next = 0;  // the least possible next id
  std::vector<float> floats(per_row);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (head.packed) {
      pieces.read(row);
    } else {
      bytes.take(row);
    }
    std::uint64_t id = 0;
    std::memcpy(&id, row.data(), sizeof id);
    if (id >= head.rows || id < next) {
      in.fail("row " + std::to_string(id) + " is out of place");
    }
    next = id + 1;
    if (shares.owner(id) != head.rank) {
      throw Error(ErrorCode::mismatch, in.source() + ": row " + std::to_string(id) + " belongs to rank " +
                                           std::to_string(shares.owner(id)) +
                                           " of the world that saved it, by this build's shares; load it with the "
                                           "build that saved it");
    }
    std::memcpy(floats.data(), row.data() + sizeof id, per_row * sizeof(float));
    visit(id, std::span<const float>(floats));
  }
  if (pieces.left() > 0) {
    in.fail("it has more rows than the " + std::to_string(count) + " that it says");
  }
  if (bytes.left() > 0) {
    in.fail(std::to_string(bytes.left()) + " bytes too many");
  }
}

/// Returns the number of bytes before the checksum, which the end of a packed file says.
std::uint64_t packed_bytes_of(RegularFile& file) {
  constexpr std::size_t kEnd = kPackedEnd + kCrcBytes;
  std::uint64_t bytes = 0;
  if (file.size() >= kEnd) {
    file.seek(file.size() - kEnd);
    static_cast<void>(file.read(&bytes, sizeof bytes));
  }
  return bytes;
}

/// Returns the bytes of all rows in a file whose head has `begin` bytes, and checks that the file is as long as that
/// makes it: a sparse file could otherwise take very long to read.
std::uint64_t row_bytes_of(RegularFile& file, const FileHead& head, std::uint64_t begin, std::uint64_t count,
                           const std::string& path) {
  const std::uint64_t units = head.packed ? packed_bytes_of(file) : count;
  const std::uint64_t unit =
      head.packed ? 1 : sizeof(std::uint64_t) + row_floats(head.optimizer, head.width) * sizeof(float);
  const std::uint64_t others = begin + (head.packed ? kPackedEnd : 0) + kCrcBytes;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t length = units > (kMost - others) / unit ? kMost : others + units * unit;
  if (length != file.size()) {
    throw Error(ErrorCode::corrupt, path + ": has " + std::to_string(file.size()) + " bytes where its rows make " +
                                        std::to_string(length) + "; use another copy");
  }
  return length - others;
}

void check_checksum(RegularFile& file, const std::string& path) {
  const wire::ByteReader in({}, path);
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

}  // namespace

void write_file(std::ostream& stream, const FileHead& head, const Shard& rows) {
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

std::optional<SaveId> save_in(const std::filesystem::path& file) {
  try {
    RegularFile stream(file, "table");
    wire::Bytes begin(kLongestHead);
    begin.resize(stream.read(begin.data(), begin.size()));
    wire::ByteReader in(begin, file.string());
    if (!has_magic(in)) {
      return std::nullopt;
    }
    const auto version = in.number<std::uint32_t>();
    return read_head(in, version).save;
  } catch (const Error&) {
    return std::nullopt;
  }
}

SaveId read_file(const std::filesystem::path& path, const FileHead& expected, const HashRing& shares,
                 const std::function<void(std::uint64_t id, std::span<const float> floats)>& visit) {
  RegularFile file(path, "table");
  wire::Bytes bytes(std::min<std::uint64_t>(file.size(), kLongestHead));
  bytes.resize(file.read(bytes.data(), bytes.size()));
  wire::ByteReader in(bytes, path.string());
  const std::uint32_t version = check_begin(in);
  const FileHead head = read_head(in, version);
  const auto count = in.number<std::uint64_t>();
  const std::uint64_t begin = bytes.size() - in.left();
  const std::uint64_t row_bytes = row_bytes_of(file, head, begin, count, path.string());
  check_checksum(file, path.string());
  check_head(head, expected, path.string());
  file.seek(begin);
  FileBytes rows(file, row_bytes, in.source());
  read_rows(rows, in, head, count, shares, visit);
  return head.save;
}

}  // namespace gradwire::table
