// The file of a checkpoint's parameters (docs/reference/state-format.md).
#define XXH_INLINE_ALL  // so that programs that link gradwire do not need libxxhash
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/durable_file.hpp"
#include "base/own_files.hpp"
#include "base/regular_file.hpp"
#include "codec/packed_pieces.hpp"
#include "gradwire/error.hpp"
#include "session/parts/checkpoints/checkpoint_folder.hpp"
#include "session/state/state_stream.hpp"

namespace gradwire::session {
namespace {

constexpr std::string_view kMagic = "gradwpar";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kFileHead = 24;  // magic, version, count, step
constexpr std::uint64_t kHead = 9;       // for each parameter: dtype, count
constexpr std::uint64_t kHash = 8;
constexpr std::uint32_t kMost = 1U << 24;  // parameters

std::uint64_t bytes_of(const ConstView& view) { return view.count * element_bytes(view.dtype); }

// Reads a file twice: first the heads of its parameters, then all of it. A file whose length differs from what its
// heads say is damaged, so a file that is long only because of holes takes neither memory nor time.
class ParametersReader {
 public:
  ParametersReader(const std::filesystem::path& file, std::span<const View> parameters)
      : file_(file, "parameters"), name_(file.string()), parameters_(parameters), step_(read_heads()) {}

  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  /// Returns the first parameter that differs from the one here, or that is missing on one of the two sides.
  [[nodiscard]] std::optional<std::size_t> first_difference() const noexcept { return other_; }
  /// Returns the values of all parameters if they match those here, otherwise none. Throws Error(corrupt) if the hash
  /// is wrong.
  [[nodiscard]] std::vector<wire::Bytes> read() {
    if (packed_) {
      return read_packed();
    }
    std::vector<wire::Bytes> values;
    StateHash hash;
    file_.seek(0);
    pass(other_ ? file_.size() - kHash : kFileHead, hash);
    for (std::size_t i = 0; !other_ && i < parameters_.size(); ++i) {
      pass(kHead, hash);
      read_into(values.emplace_back(bytes_of(parameters_[i])), hash);
    }
    if (number<std::uint64_t>() != hash.value()) {
      fail();
    }
    return values;
  }
  [[noreturn]] void fail() const { throw Error(ErrorCode::corrupt, name_ + ": it is cut off or damaged"); }

 private:
  template <class T>
  T number() {
    T value{};
    if (file_.read(&value, sizeof value) < sizeof value) {
      fail();
    }
    return value;
  }

  std::uint64_t read_heads() {
    std::string magic(kMagic.size(), '\0');
    if (file_.size() < kFileHead + kHash || file_.read(magic.data(), magic.size()) < magic.size() || magic != kMagic) {
      fail();
    }
    const auto version = number<std::uint32_t>();
    packed_ = version == (kVersion | kPackedFlag);
    const auto count = count_ = number<std::uint32_t>();
    const auto step = number<std::uint64_t>();
    if ((version != kVersion && !packed_) || count > kMost) {
      fail();
    }
    if (packed_) {
      return step;
    }
    std::uint64_t at = kFileHead;
    const std::uint64_t end = file_.size() - kHash;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (end - at < kHead) {
        fail();
      }
      file_.seek(at);
      const auto dtype = static_cast<DType>(number<std::uint8_t>());
      const auto elements = number<std::uint64_t>();
      at += kHead;
      const std::uint64_t element = element_bytes(dtype);
      if (element == 0 || elements > (end - at) / element) {
        fail();
      }
      at += elements * element;
      if (!other_ && (i >= parameters_.size() || parameters_[i].dtype != dtype || parameters_[i].count != elements)) {
        other_ = i;
      }
    }
    if (at != end) {
      fail();
    }
    if (!other_ && count < parameters_.size()) {
      other_ = count;
    }
    return step;
  }

  // The hash of all bytes is compared first, so that errors of pieces need no advice about damaged files.
  std::vector<wire::Bytes> read_packed() {
    StateHash hash;
    file_.seek(0);
    pass(file_.size() - kHash, hash);
    if (number<std::uint64_t>() != hash.value()) {
      fail();
    }
    file_.seek(kFileHead);
    codec::PieceReader pieces(
        [this](std::span<std::byte> to) {
          if (file_.read(to.data(), to.size()) < to.size()) {
            fail();
          }
        },
        name_, "");
    std::vector<wire::Bytes> values;
    for (std::uint32_t i = 0; i < count_; ++i) {
      DType dtype{};
      std::uint64_t count = 0;
      pieces.read(std::as_writable_bytes(std::span(&dtype, 1)));
      pieces.read(std::as_writable_bytes(std::span(&count, 1)));
      if (i >= parameters_.size() || parameters_[i].dtype != dtype || parameters_[i].count != count) {
        other_ = i;
        return {};
      }
      pieces.read(values.emplace_back(bytes_of(parameters_[i])));
    }
    if (count_ < parameters_.size()) {
      other_ = count_;
      return {};
    }
    return values;
  }

  void read_into(wire::Bytes& to, StateHash& hash) {
    if (file_.read(to.data(), to.size()) < to.size()) {
      fail();
    }
    hash.update(to.data(), to.size());
  }
  void pass(std::uint64_t bytes, StateHash& hash) {
    constexpr std::uint64_t kPiece = 1 << 16;
    wire::Bytes piece;
    for (; bytes > 0; bytes -= piece.size()) {
      piece.resize(std::min(bytes, kPiece));
      read_into(piece, hash);
    }
  }

  RegularFile file_;
  std::string name_;
  std::span<const View> parameters_;
  std::optional<std::size_t> other_;
  bool packed_ = false;
  std::uint32_t count_ = 0;  // parameters of the file
  std::uint64_t step_;
};

}  // namespace

std::uint64_t hash_of(std::span<const ConstView> parameters) {
  std::uint64_t hash = 0;
  for (const ConstView& view : parameters) {
    const std::uint64_t head[] = {hash, view.count, static_cast<std::uint64_t>(view.dtype)};
    hash = XXH3_64bits_withSeed(view.data, bytes_of(view), XXH3_64bits(head, sizeof head));
  }
  return hash;
}

void write_checkpoint_parameters(const std::filesystem::path& directory, const CheckpointName& name,
                                 std::span<const ConstView> parameters, bool packed) {
  if (packed) {
    codec::require_packing();
  }
  unlink_link(directory / name.text());
  DurableFile(directory / name.text(), std::string(kParametersFile), [&](std::ostream& stream) {
    StateWriter out(&stream);
    out.put(kMagic.data(), kMagic.size());
    out.number(kVersion | (packed ? kPackedFlag : 0));
    out.number(static_cast<std::uint32_t>(parameters.size()));
    out.number(name.step);
    if (packed) {
      out.begin_pieces();
    }
    for (const ConstView& view : parameters) {
      out.number(static_cast<std::uint8_t>(view.dtype));
      out.number(view.count);
      out.put(view.data, bytes_of(view), element_bytes(view.dtype));
    }
    if (packed) {
      out.end_pieces();
    }
    out.number(out.hash());
  }).commit();
}

std::vector<wire::Bytes> read_checkpoint_parameters(const std::filesystem::path& directory, const CheckpointName& name,
                                                    std::span<const View> parameters) {
  const std::filesystem::path file = directory / name.text() / kParametersFile;
  ParametersReader reader(file, parameters);
  std::vector<wire::Bytes> values = reader.read();  // first: damage explains a wrong step or parameter
  if (reader.step() != name.step) {
    throw Error(ErrorCode::corrupt, file.string() + ": it is of another step");
  }
  if (const auto other = reader.first_difference()) {
    throw Error(ErrorCode::mismatch, file.string() + ": parameter " + std::to_string(*other) +
                                         " is another one there; restore what this model saved");
  }
  return values;
}

}  // namespace gradwire::session
