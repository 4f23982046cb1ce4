// Exchanges what the ranks of a communicator tell each other before and between its calls.
#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "drop_in/device_reducer.hpp"
#include "exchange/stream/message_group.hpp"
#include "gradwire/error.hpp"
#include "plan/hash.hpp"

namespace gradwire::drop_in {
namespace {

using exchange::CurrentDevice;
using Queue = exchange::StreamBackend::Queue;

// A rank tells the others this about itself, as bytes.
struct DeviceRank {
  RankSettings settings;
  std::uint64_t process = 0;
  std::uint64_t identity = 0;  // rank 0's becomes the communicator's
  std::uint64_t name = 0;      // hash of the communicator's name
  std::uint64_t script = 0;    // bytes of the choices that it wants to follow; rank 0's count
};

// A rank with calls on several communicators in one group cannot answer on one of them before all are connected, and a
// rank that makes them one by one goes on only with the answer.
constexpr const char* kGroupedAlike =
    " (or does one rank group calls on several communicators which another makes one by one? Group them on all ranks "
    "or "
    "on none; GRADWIRE_TIMEOUT sets the limit of such a wait)";

// Returns a number that no other communicator of this process gets and, most likely, none of another process.
std::uint64_t new_identity(std::uint64_t process) {
  static std::atomic<std::uint64_t> made = 0;
  std::uint64_t mixed = process + 0x9e3779b97f4a7c15 * ++made;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

// Returns whether two of the values are equal.
bool any_twice(std::vector<std::uint64_t> values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) != values.end();
}

AgreedSettings agree_on_devices(std::span<const DeviceRank> ranks) {
  std::vector<RankSettings> all;
  std::vector<std::uint64_t> processes;
  for (const DeviceRank& rank : ranks) {
    all.push_back(rank.settings);
    processes.push_back(rank.process);
  }
  AgreedSettings agreement = agree(all);
  agreement.one_process = any_twice(std::move(processes));
  return agreement;
}

}  // namespace

template <class T>
void DeviceReducer::put(const T& mine) {
  static_assert(sizeof mine <= RankGather::kMostBytes);
  link_->gather().put(std::as_bytes(std::span(&mine, 1)));
}

template <class T>
std::vector<T> DeviceReducer::take() {
  std::vector<T> all(static_cast<std::size_t>(world_));
  try {
    link_->gather().take(std::as_writable_bytes(std::span(all)), configuration_.longest_answer());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timeout) {
      throw;
    }
    throw Error(ErrorCode::timeout, error.what() + std::string(kGroupedAlike), error.cause());
  }
  return all;
}

// Takes what calls need beside memory for their messages. The agreement itself needs none of it.
void DeviceReducer::open_device() {
  device_.load_kernels();
  step_ = reinterpret_cast<std::uint32_t*>(backend_.acquire(sizeof(std::uint32_t)));
  device_.zero(step_, sizeof(std::uint32_t));
  if (configuration_.compresses() || configuration_.dry_run) {
    link_->exchange_port().open();
  }
}

void DeviceReducer::open() {
  const CurrentDevice current(device_);
  Configuration configuration = configuration_;
  try {
    open_device();
  } catch (const Error& error) {
    configuration.disabled = configuration.disabled.empty() ? error.what() : configuration.disabled;
    configuration.mode = Mode::disabled;
  }
  disabled_ = configuration.disabled;
  prepare_choices();
  configuration.script.reset();  // other ranks have other files, or none
  DeviceRank mine{.settings = RankSettings::of(configuration),
                  .process = process_,
                  .identity = 0,
                  .name = plan::hash_of(name_.data(), name_.size(), 0),
                  .script = script_.size()};
  mine.identity = new_identity(process_);
  put(mine);
}

void DeviceReducer::post() {
  const CurrentDevice current(device_);
  link_->gather().post();
}

void DeviceReducer::close() {
  const CurrentDevice current(device_);
  const auto ranks = take<DeviceRank>();
  agreement_ = agree_on_devices(ranks);
  identity_ = ranks[0].identity;
  router_.emplace(configuration_, ledger_, agreement_, [this](std::uint64_t value) { return all_say(value); });
  if (std::all_of(ranks.begin(), ranks.end(), [&](const DeviceRank& rank) { return rank.name == ranks[0].name; })) {
    router_->set_communicator_name(name_);
  }
  if (configuration_.planner.is_auto() && agreement_.mode == Mode::compressing) {
    trials_.emplace(device_, link_->clock(), exchange_, link_->loans(),
                    [this](const choice::DeviceGate::Asked& asked) { return bytes_of_trial(asked); });
    router_->use_gate(trials_->gate());
    script_bytes_ = ranks[0].script;
  }
}

void DeviceReducer::prepare_choices() {
  if (rank_ != 0 || (!configuration_.script && !configuration_.recording)) {
    return;
  }
  choices_name_ = ledger_.number_communicator({.ranks = plan::hash_of(name_.data(), name_.size(), 0),
                                               .size = static_cast<std::uint32_t>(world_),
                                               .first = configuration_.number_in_job});
  if (configuration_.script) {
    const auto found = configuration_.script->find(choices_name_);
    ChoicesOfJob own;
    own[choices_name_] = found == configuration_.script->end() ? Choices() : found->second;
    script_ = choices_to_text(own, configuration_.policy_fingerprint());
  }
}

// A rank without memory for the text keeps all from following it: calls pass then.
void DeviceReducer::follow() {
  if (script_bytes_ == 0) {
    return;
  }
  const CurrentDevice current(device_);
  std::byte* memory = nullptr;
  try {
    memory = backend_.acquire(script_bytes_);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the others are told
  }
  Choices choices;
  if (all_have(memory != nullptr)) {
    const std::string text = send_script({memory, script_bytes_});
    choices = choices_from_text(text, configuration_.policy_fingerprint()).begin()->second;
  }
  backend_.release(memory);
  trials_->gate().follow(std::move(choices));
}

// Returns rank 0's text on each rank.
std::string DeviceReducer::send_script(std::span<std::byte> memory) {
  if (rank_ == 0) {
    device_.upload(memory.data(), std::as_bytes(std::span(script_)));
  }
  backend_.wait(Queue::communication, backend_.record(Queue::compute));
  exchange::MessageGroup group(backend_);
  for (int rank = 1; rank_ == 0 && rank < world_; ++rank) {
    backend_.send(memory, rank);
  }
  if (rank_ != 0) {
    backend_.receive(memory, 0);
  }
  group.end();
  backend_.wait(Queue::compute, backend_.record(Queue::communication));
  if (rank_ == 0) {
    return script_;
  }
  std::string text(memory.size(), '\0');
  device_.download(std::as_writable_bytes(std::span(text)), memory.data(), configuration_.longest_answer());
  return text;
}

void DeviceReducer::record_choices() const {
  if (rank_ == 0 && trials_ && configuration_.recording) {
    ledger_.add_choices(choices_name_, router_->choices());
  }
}

template <class T>
std::vector<T> DeviceReducer::gather(const T& mine) {
  const CurrentDevice current(device_);
  put(mine);
  link_->gather().post();
  return take<T>();
}

std::vector<std::string> DeviceReducer::gather_texts(const std::string& mine) {
  using Part = std::array<char, 128>;
  const std::vector<std::uint64_t> sizes = gather(std::uint64_t{mine.size()});
  const std::uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::string> all(sizes.size());
  for (std::uint64_t at = 0; at < longest; at += sizeof(Part)) {
    Part part{};
    if (at < mine.size()) {
      mine.copy(part.data(), part.size(), at);
    }
    const std::vector<Part> parts = gather(part);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      all[rank].append(parts[rank].data(), std::min(part.size(), sizes[rank] - all[rank].size()));
    }
  }
  return all;
}

bool DeviceReducer::all_say(std::uint64_t value) {
  const std::vector<std::uint64_t> values = gather(value);
  return std::all_of(values.begin(), values.end(), [=](std::uint64_t other) { return other == value; });
}

// The first calls that are compressed are the same ones on all ranks, and so are those that are captured. The exchange
// of offers ends behind all earlier calls on the job's communicator: NCCL wants none under way when it is split.
void DeviceReducer::open_own_communicator(const Job& first) {
  OwnCommunicator* const own = link_->own_communicator();
  if (own == nullptr || own->settled() || first.reduce.captured) {
    return;
  }
  const std::vector<OwnCommunicator::Offer> offers = gather(own->offer());
  const bool made = own->make(offers);
  const bool all = all_have(made);
  own->settle(all);
  if (!all && rank_ == 0) {
    lines_.push_back("a communicator of " + std::to_string(world_) +
                     " ranks gets no second one for gradwire's messages, since NCCL or the memory of some rank refuses "
                     "it: the job's calls on it come behind the compressed ones before them");
  }
}

}  // namespace gradwire::drop_in
