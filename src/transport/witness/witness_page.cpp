#include "transport/witness/witness_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace gradwire::transport::witness {
namespace {

constexpr off_t kBytes = 4096;

}  // namespace

std::optional<WitnessPage> WitnessPage::make() {
  tcp::Socket memory(::memfd_create("gradwire-witness", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid() || ::ftruncate(memory.fd(), kBytes) != 0 ||
      ::fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {  // NOLINT(*-vararg)
    return std::nullopt;
  }
  return map(std::move(memory), true);
}

std::optional<WitnessPage> WitnessPage::of(tcp::Socket memory) {
  struct stat status {};
  const int seals = memory.valid() ? ::fcntl(memory.fd(), F_GET_SEALS) : -1;  // NOLINT(*-vararg)
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(memory.fd(), &status) != 0 || status.st_size != kBytes) {
    return std::nullopt;
  }
  return map(std::move(memory), false);
}

std::optional<WitnessPage> WitnessPage::map(tcp::Socket memory, bool own) {
  void* const mapped = ::mmap(nullptr, kBytes, own ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, memory.fd(), 0);
  if (mapped == MAP_FAILED) {
    return std::nullopt;
  }
  return WitnessPage(own ? std::move(memory) : tcp::Socket(), static_cast<Words*>(mapped));  // zeros are its words
}

WitnessPage::WitnessPage(WitnessPage&& other) noexcept
    : memory_(std::move(other.memory_)), words_(std::exchange(other.words_, nullptr)) {}

WitnessPage& WitnessPage::operator=(WitnessPage&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(words_, other.words_);
  return *this;
}

WitnessPage::~WitnessPage() {
  if (words_ != nullptr) {
    ::munmap(words_, kBytes);
  }
}

bool WitnessPage::read_once(int memory, LastWord& word) noexcept {
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, memory, 0);
  if (mapped == MAP_FAILED) {
    return false;
  }
  word = read(*static_cast<const Words*>(mapped));
  return true;
}

LastWord WitnessPage::read() const noexcept { return read(*words_); }

LastWord WitnessPage::read(const Words& words) noexcept {
  // The epoch is read first: a step that counts afterwards belongs to it, or to a later one.
  LastWord word;
  word.epoch = words.epoch.load(std::memory_order_acquire);
  word.step = words.step.load(std::memory_order_acquire);
  return word;
}

}  // namespace gradwire::transport::witness
