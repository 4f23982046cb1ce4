// Saves and loads the state of an optimizer. Little-endian: "gradopt1", u64 bytes of the body, the body, u32 CRC-32C of
// all bytes before it; or "gradopt2", where the body is cut into packed pieces (codec/packed_pieces.hpp). Body: text
// kind, u64 steps, f64 loss scale, f64 numbers, u32 tensors; and for each tensor: text name, u64 count, f32 moments.
#include <algorithm>
#include <array>
#include <cstring>
#include <istream>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "codec/packed_pieces.hpp"
#include "gradwire/optimizer.hpp"
#include "wire/bytes.hpp"
#include "wire/crc32c.hpp"

namespace gradwire {
namespace {

constexpr std::string_view kMagic = "gradopt1";
constexpr std::string_view kPackedMagic = "gradopt2";
constexpr std::size_t kHeadBytes = kMagic.size() + sizeof(std::uint64_t);
constexpr const char* kSource = "optimizer state";
constexpr const char* kAdvice = "; use another copy of the state, or start without it";

// Reads bytes, and computes the CRC of all that were read.
struct CheckedReader {
  std::istream& stream;
  std::uint32_t crc = 0;

  void read(std::span<std::byte> bytes) {
    stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (stream.gcount() != static_cast<std::streamsize>(bytes.size())) {
      throw Error(ErrorCode::corrupt, std::string(kSource) + ": it ends early" + kAdvice);
    }
    crc = wire::crc32c(bytes, crc);
  }
};

// Writes a state without a copy of it, and computes the CRC of all bytes that were written.
class CheckedWriter {
 public:
  explicit CheckedWriter(std::ostream& stream) : stream_(stream) {}

  void begin_pieces() {
    pieces_.emplace([this](std::span<const std::byte> piece) { write(piece); });
  }
  void end_pieces() {
    pieces_->flush();
    pieces_.reset();
  }
  template <class T>
  void numbers(std::span<const T> values) {
    pieces_ ? pieces_->put(std::as_bytes(values), sizeof(T)) : write(std::as_bytes(values));
  }
  template <class T>
  void number(T value) {
    numbers(std::span<const T>(&value, 1));
  }
  void text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    numbers(std::span(text));
  }
  [[nodiscard]] std::uint32_t crc() const noexcept { return crc_; }

 private:
  void write(std::span<const std::byte> bytes) {
    crc_ = wire::crc32c(bytes, crc_);
    stream_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

  std::ostream& stream_;
  std::optional<codec::PieceWriter> pieces_;
  std::uint32_t crc_ = 0;
};

Error other(const std::string& what) {
  return {ErrorCode::mismatch,
          std::string(kSource) + ": " + what + "; load what the same optimizer of the same model saved"};
}

}  // namespace

struct Optimizer::Loaded {
  std::uint64_t steps = 0;
  double loss_scale = 1;
  std::vector<double> numbers;
  std::vector<std::vector<Floats>> moments;  // by tensor
};

void Optimizer::save(std::ostream& stream, bool packed) const {
  if (packed) {
    codec::require_packing();
  }
  CheckedWriter out(stream);
  out.numbers(std::span(packed ? kPackedMagic : kMagic));
  out.number(body_bytes());
  if (packed) {
    out.begin_pieces();
  }
  out.text(kind_);
  out.number(steps_);
  out.number(loss_scale_);
  out.numbers(std::span(numbers_));
  out.number(static_cast<std::uint32_t>(tensors_.size()));
  for (const Tensor& tensor : tensors_) {
    out.text(tensor.name);
    out.number(static_cast<std::uint64_t>(tensor.parameter.size()));
    for (const Floats& moment : tensor.moments) {
      out.numbers(std::span<const float>(moment));
    }
  }
  if (packed) {
    out.end_pieces();
  }
  out.number(out.crc());
  if (!stream) {
    throw Error(ErrorCode::invalid_argument, "optimizer: the state cannot be written to the stream");
  }
}

std::uint64_t Optimizer::body_bytes() const {
  std::uint64_t bytes = sizeof(std::uint32_t) + kind_.size() + sizeof steps_ + sizeof loss_scale_ +
                        numbers_.size() * sizeof(double) + sizeof(std::uint32_t);
  for (const Tensor& tensor : tensors_) {
    bytes += sizeof(std::uint32_t) + tensor.name.size() + sizeof(std::uint64_t) +
             moments_ * tensor.parameter.size() * sizeof(float);
  }
  return bytes;
}

Optimizer::Loaded Optimizer::parse(std::span<const std::byte> body) const {
  wire::ByteReader in(body, kSource, kAdvice);
  if (const std::string kind = in.text(); kind != kind_) {
    throw other("it is of " + kind + ", this is " + std::string(kind_));
  }
  Loaded loaded{.steps = in.number<std::uint64_t>(),
                .loss_scale = in.number<double>(),
                .numbers = std::vector<double>(numbers_.size()),
                .moments = {}};
  in.numbers(std::span(loaded.numbers));
  if (const auto count = in.number<std::uint32_t>(); count != tensors_.size()) {
    throw other("it has " + std::to_string(count) + " parameters, here are " + std::to_string(tensors_.size()));
  }
  for (const Tensor& tensor : tensors_) {
    const std::string name = in.text();
    const auto elements = in.number<std::uint64_t>();
    if (name != tensor.name || elements != tensor.parameter.size()) {
      throw other("\"" + name + "\" x " + std::to_string(elements) + " stands for \"" + tensor.name + "\" x " +
                  std::to_string(tensor.parameter.size()));
    }
    std::vector<Floats>& moments = loaded.moments.emplace_back();
    for (std::size_t i = 0; i < moments_; ++i) {
      in.numbers(std::span(moments.emplace_back(elements)));
    }
  }
  in.expect_end();
  return loaded;
}

void Optimizer::load(std::istream& stream) {
  CheckedReader in{stream};
  std::array<std::byte, kHeadBytes> head{};
  in.read(head);
  std::uint64_t size = 0;
  std::memcpy(&size, head.data() + kMagic.size(), sizeof size);
  const std::string_view magic = wire::as_text(std::span(head).first(kMagic.size()));
  if (magic != kMagic && magic != kPackedMagic) {
    throw Error(ErrorCode::corrupt, std::string(kSource) + ": it does not begin as one" + kAdvice);
  }
  if (size != body_bytes()) {  // checked first, so that a damaged length allocates no memory
    throw other("it has " + std::to_string(size) + " bytes, that of this model has " + std::to_string(body_bytes()));
  }
  wire::Bytes body(size);
  if (magic == kPackedMagic) {
    codec::PieceReader pieces([&](std::span<std::byte> bytes) { in.read(bytes); }, kSource, kAdvice);
    pieces.read(body);
    if (pieces.left() != 0) {
      throw Error(ErrorCode::corrupt, std::string(kSource) + ": it is longer than it says" + kAdvice);
    }
  } else {
    in.read(body);
  }
  const std::uint32_t wanted = in.crc;
  std::uint32_t crc = 0;
  in.read(std::as_writable_bytes(std::span(&crc, 1)));
  if (crc != wanted) {
    throw Error(ErrorCode::corrupt, std::string(kSource) + ": its checksum is wrong" + kAdvice);
  }
  Loaded loaded = parse(body);
  steps_ = loaded.steps;
  loss_scale_ = loaded.loss_scale;
  std::ranges::copy(loaded.numbers, numbers_.begin());  // copied in place, because views of state() must stay valid
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    for (std::size_t m = 0; m < moments_; ++m) {
      std::ranges::copy(loaded.moments[i][m], tensors_[i].moments[m].begin());
    }
    if (!tensors_[i].scale.empty()) {
      renew_scale(tensors_[i]);
    }
  }
}

std::vector<View> Optimizer::state() {
  static_assert(sizeof steps_ == sizeof(double));
  std::vector<View> views{
      {&steps_, 1, DType::f64}, {&loss_scale_, 1, DType::f64}, {numbers_.data(), numbers_.size(), DType::f64}};
  for (Tensor& tensor : tensors_) {
    for (Floats& moment : tensor.moments) {
      views.push_back(view(moment.data(), moment.size()));
    }
    if (!tensor.scale.empty()) {
      views.push_back(view(tensor.scale.data(), tensor.scale.size()));
    }
  }
  std::erase_if(views, [](const View& each) { return each.count == 0; });
  return views;
}

}  // namespace gradwire
