// The transport of one of the job's communicators over the private communicator of all ranks: its notices, and how it
// is made. Its messages are in mpi_messages.cpp.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/mutex.hpp"
#include "transport/mpi_endpoint.hpp"
#include "transport/mpi_environment.hpp"
#include "transport/mpi_faults.hpp"
#include "transport/mpi_world.hpp"

namespace gradwire::transport {
namespace {

// The first byte of a notice.
constexpr char kAbort = 1;     // then the code, then text
constexpr char kFaulty = 2;    // MPI's own calls on the job's communicator report the reason
constexpr char kQuestion = 3;  // then the u32 number of the question
constexpr char kAnswer = 4;    // the same, then an int for each rank that it waits for

constexpr std::chrono::milliseconds kNoticeLimit{20};
constexpr std::size_t kMostRanksNamed = 200;

template <typename T>
void append(std::vector<char>& bytes, const T* values, std::size_t count = 1) {
  const auto* begin = reinterpret_cast<const char*>(values);
  bytes.insert(bytes.end(), begin, begin + count * sizeof(T));
}

}  // namespace

class SlotNotices final : public MpiNotices, public NoticeListener {
 public:
  explicit SlotNotices(const MpiSlot& slot) : slot_(slot) {
    const auto self = std::find(slot.ranks.begin(), slot.ranks.end(), world().rank());
    set_rank(static_cast<int>(self - slot.ranks.begin()));
    world().listen(slot.number, *this);
  }
  ~SlotNotices() override { world().stop_listening(slot_.number); }

  void hear(int from, std::span<const char> bytes) noexcept override {
    const int rank = local(from);
    if (bytes.empty() || rank < 0) {
      return;
    }
    if (bytes[0] == kFaulty) {
      become_faulty(rank);
    } else if (bytes[0] == kAbort && bytes.size() >= 2) {
      const auto code = static_cast<unsigned char>(bytes[1]);
      const bool known = code <= static_cast<unsigned char>(kLastErrorCode);
      note_.set(
          {rank, Error(known ? ErrorCode{code} : ErrorCode::internal, std::string(bytes.begin() + 2, bytes.end()))});
    } else {
      const MutexLock lock(mutex_);
      inbox_.emplace_back(rank, std::vector<char>(bytes.begin(), bytes.end()));
      has_mail_.store(true, std::memory_order_release);
    }
  }
  void hear_of_end(int ended) noexcept override {
    if (const int rank = local(ended); rank >= 0) {
      become_faulty(rank);
    }
  }

  void poll(const WaitsFor& waits_for) override {
    world().poll();
    if (!has_mail_.exchange(false, std::memory_order_acquire)) {
      return;
    }
    std::vector<std::pair<int, std::vector<char>>> mail;
    {
      const MutexLock lock(mutex_);
      mail.swap(inbox_);
    }
    for (const auto& [rank, bytes] : mail) {
      if (bytes[0] == kQuestion && bytes.size() == 1 + sizeof question_) {
        answer(rank, bytes, waits_for());
      } else if (bytes[0] == kAnswer) {
        take_answer(rank, bytes);
      }
    }
  }

  void ask() override {
    ++question_;
    answers_.assign(slot_.ranks.size(), {});
    answers_[static_cast<std::size_t>(local(world().rank()))].answers = true;
    std::vector<char> bytes{kQuestion};
    append(bytes, &question_);
    world().notify(slot_.number, slot_.ranks, bytes, kNoticeLimit);
  }

  void announce(std::chrono::milliseconds limit) noexcept override {
    const AbortReason reason = note_.reason();
    if (reason.origin != local(world().rank()) || announced_.exchange(true)) {
      return;
    }
    if (faulty()) {
      tell_faulty(slot_);
      return;
    }
    std::vector<char> bytes{kAbort, static_cast<char>(reason.error.code())};
    const std::string_view text(reason.error.what());
    append(bytes, text.data(), std::min<std::size_t>(text.size(), 900));
    world().notify(slot_.number, slot_.ranks, bytes, limit);
  }

  [[nodiscard]] bool faulty() const noexcept { return faulty_ || is_faulty(slot_.comm); }

 private:
  [[nodiscard]] MpiWorld& world() const noexcept { return slot_.lease->world(); }
  [[nodiscard]] int local(int world_rank) const noexcept {
    const auto found = std::find(slot_.ranks.begin(), slot_.ranks.end(), world_rank);
    return found == slot_.ranks.end() ? -1 : static_cast<int>(found - slot_.ranks.begin());
  }
  void become_faulty(int rank) noexcept {
    faulty_ = true;
    note_.set(
        {rank, Error(ErrorCode::aborted, "a rank has ended, or the communicator was revoked", ErrorCause::world)});
  }
  void answer(int rank, const std::vector<char>& question, const std::vector<int>& waits_for) {
    std::vector<char> bytes = question;
    bytes[0] = kAnswer;
    append(bytes, waits_for.data(), std::min(waits_for.size(), kMostRanksNamed));
    world().notify(slot_.number, std::span(&slot_.ranks[static_cast<std::size_t>(rank)], 1), bytes, kNoticeLimit);
  }
  void take_answer(int rank, const std::vector<char>& bytes) {
    std::uint32_t question = 0;
    constexpr std::size_t kHead = 1 + sizeof question;
    if (bytes.size() < kHead || answers_.empty()) {
      return;
    }
    std::memcpy(&question, bytes.data() + 1, sizeof question);
    if (question == question_) {  // another number: the answer came too late
      PeerState& state = answers_[static_cast<std::size_t>(rank)];
      state.answers = true;
      state.waits_for.resize((bytes.size() - kHead) / sizeof(int));
      std::memcpy(state.waits_for.data(), bytes.data() + kHead, state.waits_for.size() * sizeof(int));
    }
  }

  MpiSlot slot_;
  std::uint32_t question_ = 0;  // number of this rank's latest question
  std::atomic<bool> announced_ = false;
  std::atomic<bool> faulty_ = false;
  std::atomic<bool> has_mail_ = false;
  Mutex mutex_;
  std::vector<std::pair<int, std::vector<char>>> inbox_ GUARDED_BY(mutex_);
};

MpiTransport::MpiTransport(const MpiSlot& slot, const MpiOptions& options)
    : options_(options),
      slot_(std::make_unique<MpiSlot>(slot)),
      serial_(0),
      world_size_(static_cast<int>(slot.ranks.size())),
      level_(mpi_thread_level()),
      communicators_(slot.lease->world().comm(), slot.lease->world().tags(), slot.lease->slot()),
      backoff_(options.yield) {
  auto notices = std::make_unique<SlotNotices>(slot);
  slot_notices_ = notices.get();
  notices_ = std::move(notices);
  const std::vector<std::uint32_t>& nodes = slot.lease->world().nodes();
  for (std::size_t rank = 0; rank < slot.ranks.size(); ++rank) {
    nodes_.push_back(nodes[static_cast<std::size_t>(slot.ranks[rank])]);
    rank_ = slot.ranks[rank] == slot.lease->world().rank() ? static_cast<int>(rank) : rank_;
  }
}

/// Ends the transport and frees nothing, since the communicator belongs to the whole process.
void MpiTransport::end_in_slot() noexcept {
  if (!may_use_mpi() || notices_->raised() || leaked_) {
    slot_->lease->spoil();
  }
  notices_.reset();
}

bool MpiTransport::slot_is_faulty() const noexcept { return slot_notices_->faulty(); }

std::shared_ptr<Transport> make_mpi(const MpiSlot& slot, const MpiOptions& options) {
  return std::make_shared<MpiTransport>(slot, options);
}

void tell_faulty(const MpiSlot& slot) noexcept {
  slot.lease->world().notify(slot.number, slot.ranks, std::vector<char>{kFaulty}, kNoticeLimit);
}

}  // namespace gradwire::transport
