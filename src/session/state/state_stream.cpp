#include "session/state/state_stream.hpp"

#include <array>

namespace gradwire::session {
namespace {

constexpr std::string_view kAdvice = "; use another copy of the state, or start without it";
constexpr std::uint32_t kOldestVersion = 1;  // it has no state of sync modes

}  // namespace

StateReader::StateReader(std::istream& stream, std::string source) : stream_(stream), source_(std::move(source)) {
  std::array<char, kStateMagic.size()> magic{};
  if (take(magic.data(), magic.size()) < magic.size() || std::string_view(magic.data(), magic.size()) != kStateMagic) {
    fail("it is no saved state of gradwire");
  }
  version_ = number<std::uint32_t>();
  static_cast<void>(number<std::uint32_t>());  // zero
  const auto body = number<std::uint64_t>();
  body_ = left_ = body;
  if ((version_ & kPackedFlag) != 0) {
    version_ &= ~kPackedFlag;
    pieces_.emplace(
        [this](std::span<std::byte> to) {
          if (take_stored(to.data(), to.size()) < to.size()) {
            cut();
          }
        },
        source_, std::string(kAdvice));
  }
}

void StateReader::require_version() const {
  if (version_ < kOldestVersion || version_ > kStateVersion) {
    throw Error(ErrorCode::unsupported, source_ + ": is of version " + std::to_string(version_) +
                                            " of the format; this build reads versions " +
                                            std::to_string(kOldestVersion) + " to " + std::to_string(kStateVersion));
  }
}

// A read error of the disk does not mean that the file is damaged, so the error is not Error(corrupt).
void StateReader::require_stream() const {
  if (stream_.bad()) {
    throw Error(ErrorCode::invalid_argument, source_ + ": cannot be read to its end");
  }
}

void StateReader::fail(const std::string& what) const {
  throw Error(ErrorCode::corrupt, source_ + ": " + what + std::string(kAdvice));
}

std::uint64_t StateReader::take_stored(void* to, std::uint64_t bytes) {
  stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  require_stream();
  const auto taken = static_cast<std::uint64_t>(stream_.gcount());
  hash_.update(to, taken);
  return taken;
}

std::uint64_t StateReader::take(void* to, std::uint64_t bytes) {
  std::uint64_t taken = bytes;
  if (pieces_) {
    pieces_->read({static_cast<std::byte*>(to), bytes});
  } else {
    taken = take_stored(to, bytes);
  }
  left_ -= taken;
  return taken;
}

void StateReader::read(void* to, std::uint64_t bytes) {
  require(bytes, 1);
  if (bytes > 0 && take(to, bytes) < bytes) {
    cut();
  }
}

void StateReader::skip(std::uint64_t bytes) {
  std::array<char, 1 << 14> piece{};
  while (bytes > 0) {
    const std::uint64_t count = std::min<std::uint64_t>(bytes, piece.size());
    read(piece.data(), count);
    bytes -= count;
  }
}

void StateReader::cut(std::uint64_t beyond) const {
  fail(body_ == 0 ? "it ends too early"
                  : "it should have " + std::to_string(body_) + " bytes of content but ends after " +
                        std::to_string(body_ - left_ + beyond));
}

void StateReader::expect_end() const {
  if (left_ > 0) {
    fail(std::to_string(left_) + " bytes too many");
  }
}

void StateReader::check_hash() {
  skip(left_);
  if (pieces_ && pieces_->left() > 0) {
    fail("a packed piece reaches beyond its content");
  }
  std::uint64_t hash = 0;
  stream_.read(reinterpret_cast<char*>(&hash), sizeof hash);
  require_stream();
  if (stream_.gcount() != sizeof hash) {
    cut(static_cast<std::uint64_t>(stream_.gcount()));
  }
  if (hash != hash_.value()) {
    fail("it is damaged: its checksum is wrong");
  }
}

}  // namespace gradwire::session
