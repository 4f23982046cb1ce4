#include "transport/tcp/tcp_lane.hpp"

#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "transport/tcp/tcp_card.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::size_t kPiece = 65536;                    // bytes of one read
constexpr std::size_t kMostToAcknowledge = 1U << 16U;    // most bytes that are received before they are acknowledged
constexpr std::chrono::milliseconds kAcknowledgeIn{50};  // longest delay of an acknowledgement

}  // namespace

TcpLane::TcpLane(Socket first, Role role) : role_(role) {
  if (role == Role::dials) {
    secret_ = random_number();
  }
  offer(std::move(first));
}

void TcpLane::offer(Socket socket) {
  if (closed_ || !socket.valid()) {
    return;
  }
  if (role_ == Role::accepts) {
    candidate_ = std::move(socket);
    candidate_reader_.clear();
    return;
  }
  drop();
  ++attempt_;
  socket_ = std::move(socket);
  begin_resuming();
}

void TcpLane::begin_resuming() {
  const Resume said{.secret = *secret_, .attempt = attempt_};
  unnumbered_.push_back(make_packet(PacketKind::resume, received_, bytes_of_body(said)));
  acknowledged_number_ = received_;
  bytes_to_acknowledge_ = 0;
  flush();
}

void TcpLane::drop() noexcept {
  socket_ = Socket();
  reader_.clear();
  live_ = false;
  staged_ = Staged::nothing;
  unnumbered_.clear();
  sent_ = 0;
  unsent_ = kept_bytes_;
}

void TcpLane::close() noexcept {
  drop();
  candidate_ = Socket();
  candidate_reader_.clear();
  closed_ = true;
  std::deque<Kept>().swap(kept_);
  kept_bytes_ = 0;
  unsent_ = 0;
}

void TcpLane::shut() noexcept {
  flush();
  candidate_ = Socket();  // a candidate that has proven nothing by now is useless
  if (socket_.valid()) {
    static_cast<void>(shutdown(socket_.fd(), SHUT_WR));
  }
}

bool TcpLane::push(PacketKind kind, std::span<const std::byte> body) {
  if (closed_) {
    return true;
  }
  if (kept_bytes_ + body.size() + (kept_.size() + 1) * sizeof(Kept) > kMostKept) {
    return false;
  }
  kept_.push_back({.kind = kind, .body = {body.begin(), body.end()}});
  kept_bytes_ += body.size();
  unsent_ += body.size();
  flush();
  return true;
}

void TcpLane::push_unnumbered(PacketKind kind, std::span<const std::byte> body) {
  if (live_) {
    unnumbered_.push_back(make_packet(kind, received_, body));
    flush();
  }
}

bool TcpLane::has_more() const noexcept {
  return socket_.valid() && (staged_ != Staged::nothing || !unnumbered_.empty() || (live_ && sent_ < kept_.size()));
}

bool TcpLane::arrived() const noexcept {
  int left = 0;
  return !has_more() && (!socket_.valid() || ioctl(socket_.fd(), TIOCOUTQ, &left) != 0 || left == 0);
}

// Prepares the next packet, if there is one.
bool TcpLane::stage() {
  if (staged_ != Staged::nothing) {
    return true;
  }
  staged_sent_ = 0;
  if (!unnumbered_.empty()) {
    staged_unnumbered_ = std::move(unnumbered_.front());
    unnumbered_.pop_front();
    staged_ = Staged::unnumbered;
    return true;
  }
  if (!live_ || sent_ >= kept_.size()) {
    return false;
  }
  const Kept& next = kept_[sent_];
  head_ = make_head(next.kind, first_kept_ + sent_, received_, next.body);
  acknowledged_number_ = received_;
  bytes_to_acknowledge_ = 0;
  staged_body_ = next.body;
  staged_ = Staged::kept;
  return true;
}

void TcpLane::flush() noexcept {
  while (socket_.valid() && stage()) {
    const bool plain = staged_ == Staged::unnumbered;
    const std::span<const std::byte> first =
        plain ? std::span<const std::byte>(staged_unnumbered_) : std::as_bytes(std::span(&head_, 1));
    const std::span<const std::byte> second = plain ? std::span<const std::byte>() : staged_body_;
    const std::size_t of_first = std::min(staged_sent_, first.size());
    std::array<iovec, 2> parts{};
    const auto fill = [](iovec& part, std::span<const std::byte> bytes) {
      part.iov_base = const_cast<std::byte*>(bytes.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
      part.iov_len = bytes.size();
    };
    fill(parts[0], first.subspan(of_first));
    fill(parts[1], second.subspan(staged_sent_ - of_first));
    const ssize_t count = send_some(socket_, parts);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return;  // take() notices the same error
    }
    staged_sent_ += static_cast<std::size_t>(count);
    if (staged_sent_ < first.size() + second.size()) {
      continue;
    }
    staged_ = Staged::nothing;
    if (!plain) {
      unsent_ -= second.size();
      ++sent_;
    }
  }
}

// Gives the reader what has arrived. False: nothing more comes now.
bool TcpLane::fill(const Socket& socket, PacketReader& reader, std::size_t& most_bytes, int& why, bool& gone) {
  // The buffer is not on the stack, since a thread of the job may have a small one, and not in the pool, since nothing
  // may be refused here.
  std::vector<std::byte> buffer(kPiece);
  while (most_bytes > 0) {
    const ssize_t count = receive_some(socket, std::span(buffer).first(std::min(buffer.size(), most_bytes)));
    if (count > 0) {
      reader.add(std::span(buffer).first(static_cast<std::size_t>(count)));
      most_bytes -= static_cast<std::size_t>(count);
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      why = count == 0 ? 0 : errno;
      gone = true;
      return false;
    } else if (errno == EAGAIN) {
      return false;
    }
  }
  return true;
}

bool TcpLane::acknowledged(std::uint64_t number) {
  if (number >= first_kept_ + kept_.size() || (live_ && number >= first_kept_ + sent_)) {
    return false;  // it acknowledges a packet that was never sent
  }
  while (first_kept_ <= number) {
    kept_bytes_ -= kept_.front().body.size();
    if (sent_ > 0) {
      --sent_;
    } else {
      unsent_ -= kept_.front().body.size();
    }
    kept_.pop_front();
    ++first_kept_;
  }
  if (kept_.empty()) {
    std::deque<Kept>().swap(kept_);  // frees its memory, which clear() would keep
  }
  return true;
}

// On the accepting side the first packet shows whether the candidate belongs to this lane. If so, it is the connection.
bool TcpLane::prove() {
  PacketHead head;
  std::span<const std::byte> body;
  const auto next = candidate_reader_.next(head, body);
  Resume said;
  const bool right = next == PacketReader::Next::packet && head.kind == PacketKind::resume && read_body(body, said) &&
                     said.secret == secret_.value_or(said.secret) && said.attempt > attempt_ &&
                     head.acknowledged + 1 >= first_kept_ && head.acknowledged < first_kept_ + kept_.size();
  if (!right) {
    if (next != PacketReader::Next::more) {
      candidate_ = Socket();
    }
    return false;
  }
  drop();
  socket_ = std::exchange(candidate_, Socket());
  reader_ = std::exchange(candidate_reader_, PacketReader());
  secret_ = said.secret;
  attempt_ = said.attempt;
  static_cast<void>(acknowledged(head.acknowledged));
  live_ = true;
  begin_resuming();
  return true;
}

// Whether this packet may come now. Applies its acknowledgement.
bool TcpLane::is_right(const PacketHead& head, std::span<const std::byte> body) {
  if (!live_) {  // on the dialling side the first packet is the answer
    Resume said;
    if (head.kind != PacketKind::resume || !read_body(body, said) || said.secret != secret_ ||
        said.attempt != attempt_ || !acknowledged(head.acknowledged)) {
      return false;
    }
    live_ = true;
    return true;
  }
  if (!acknowledged(head.acknowledged) || (has_number(head.kind) && head.number != received_ + 1)) {
    return false;
  }
  return has_number(head.kind) || head.kind == PacketKind::acknowledgement || head.kind == PacketKind::again;
}

TcpLane::Change TcpLane::take(std::vector<Taken>& taken, std::size_t most_bytes) {
  Change change = Change::none;
  bool gone = false;
  int why = 0;
  const bool had_candidate = candidate_.valid();
  if (had_candidate) {
    int ignored = 0;
    bool ended = false;
    std::size_t of_candidate = sizeof(PacketHead) + sizeof(Resume);
    static_cast<void>(fill(candidate_, candidate_reader_, of_candidate, ignored, ended));
    if (prove()) {
      change = Change::mended;
    } else if (ended) {
      candidate_ = Socket();
    }
  }
  if (!socket_.valid()) {
    return had_candidate && !candidate_.valid() ? Change::broke : change;
  }
  const bool was_live = live_;
  static_cast<void>(fill(socket_, reader_, most_bytes, why, gone));
  PacketHead head;
  std::span<const std::byte> body;
  bool damaged = false;
  for (auto next = PacketReader::Next::packet; (next = reader_.next(head, body)) != PacketReader::Next::more;) {
    damaged = next == PacketReader::Next::damaged || !is_right(head, body);
    if (damaged) {
      break;
    }
    if (has_number(head.kind)) {
      ++received_;
      if (bytes_to_acknowledge_ == 0) {
        to_acknowledge_since_ = Clock::now();
      }
      bytes_to_acknowledge_ += sizeof(head) + body.size();
    }
    if (has_number(head.kind) || head.kind == PacketKind::again) {
      taken.push_back({.kind = head.kind, .body = {body.begin(), body.end()}});
    }
  }
  if (gone || damaged) {
    why_ = damaged ? 0 : why;
    damaged_ = damaged;
    drop();
    return Change::broke;
  }
  flush();
  return live_ && !was_live ? Change::mended : change;
}

bool TcpLane::owes(Clock::time_point now) const noexcept {
  return live_ && received_ > acknowledged_number_ &&
         (bytes_to_acknowledge_ >= kMostToAcknowledge || now >= to_acknowledge_since_ + kAcknowledgeIn);
}

void TcpLane::acknowledge() {
  acknowledged_number_ = received_;
  bytes_to_acknowledge_ = 0;
  push_unnumbered(PacketKind::acknowledgement, {});
}

}  // namespace gradwire::transport::tcp
