// The file of a checkpoint's parameters (docs/reference/state-format.md).
#define XXH_INLINE_ALL  // so that programs that link gradwire do not need libxxhash
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/regular_file.hpp"
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
    if (file_.size() < kFileHead + kHash || file_.read(magic.data(), magic.size()) < magic.size() || magic != kMagic ||
        number<std::uint32_t>() != kVersion) {
      fail();
    }
    const auto count = number<std::uint32_t>();
    const auto step = number<std::uint64_t>();
    if (count > kMost) {
      fail();
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

wire::Bytes encode_parameters(std::span<const ConstView> parameters, std::uint64_t step) {
  std::uint64_t bytes = 64;
  for (const ConstView& view : parameters) {
    bytes += bytes_of(view) + 16;
  }
  wire::Bytes out;
  out.reserve(bytes);  // so that large parameters are copied once
  wire::put(out, kMagic.data(), kMagic.size());
  wire::put_number(out, kVersion);
  wire::put_number(out, static_cast<std::uint32_t>(parameters.size()));
  wire::put_number(out, step);
  for (const ConstView& view : parameters) {
    wire::put_number(out, static_cast<std::uint8_t>(view.dtype));
    wire::put_number(out, view.count);
    wire::put(out, view.data, bytes_of(view));
  }
  wire::put_number(out, static_cast<std::uint64_t>(XXH3_64bits(out.data(), out.size())));
  return out;
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
