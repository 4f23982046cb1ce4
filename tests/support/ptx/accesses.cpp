// Instructions that access memory. Each access of each lane is checked: its alignment, its bounds, whether what it
// loads was ever stored, and whether it is ordered against the accesses of other threads.
#include <cstring>

#include "tests/support/ptx/addresses.hpp"
#include "tests/support/ptx/forms.hpp"
#include "tests/support/ptx/machine.hpp"

namespace gradwire::ptx {

namespace {

struct Place {
  std::uint8_t* bytes = nullptr;
  std::uint8_t* state = nullptr;  // null for parameters and shared memory
  Cell* cells = nullptr;          // null for parameters and local memory
  [[nodiscard]] bool is_global() const { return state != nullptr && cells != nullptr; }
};

// One access of one lane.
class Access {
 public:
  Access(Warp& warp, const Instruction& instruction, std::uint32_t lane, std::uint64_t address)
      : warp_(warp), instruction_(instruction), form_(instruction.memory), lane_(lane), address_(address) {
    size_ = form_.kind == MemoryForm::Kind::prefetch ? 1 : std::size_t{form_.bytes} * form_.vector;
  }

  Place locate() {
    if (address_ % size_ != 0) {
      fail("misaligned access of " + std::to_string(size_) + " bytes");
    }
    Space space = form_.space;
    std::uint64_t offset = address_;
    if (space == Space::generic || space == Space::parameter) {
      const std::uint64_t window = address_ & kWindowMask;
      space = window == kSharedWindow      ? Space::shared
              : window == kLocalWindow     ? Space::local
              : window == kParameterWindow ? Space::parameter
                                           : Space::global;
      offset = space == Space::global ? address_ : address_ & ~kWindowMask;
    }
    Block& block = *warp_.block;
    switch (space) {
      case Space::shared:
        in_bounds(offset, block.shared.size(), "shared memory");
        return {block.shared.data() + offset, nullptr, block.shared_cells.data() + offset};
      case Space::local: {
        const std::size_t bytes = block.grid->launch.kernel->local_bytes;
        in_bounds(offset, bytes, "local memory");
        return {warp_.local.data() + lane_ * bytes + offset, warp_.local_defined.data() + lane_ * bytes + offset,
                nullptr};
      }
      case Space::parameter:
        in_bounds(offset, block.grid->launch.parameters.size(), "the parameters");
        if (form_.kind != MemoryForm::Kind::load) {
          fail("a store to parameters");
        }
        return {block.grid->launch.parameters.data() + offset, nullptr, nullptr};
      default: return in_global(offset);
    }
  }

  // Checks the access against earlier ones, and notes it.
  void note(const Place& place) {
    const bool stores = form_.kind != MemoryForm::Kind::load;
    if (place.state != nullptr) {
      for (std::size_t b = 0; b < size_; ++b) {
        if (form_.kind != MemoryForm::Kind::store && (place.state[b] & kDefined) == 0) {
          fail("uninitialised read of " + std::to_string(size_) + " bytes, of which number " + std::to_string(b) +
               " was never written");
        }
        place.state[b] |= stores ? kDefined : 0;
      }
    }
    if (place.cells == nullptr) {
      return;
    }
    const Viewer viewer = viewer_of(warp_, lane_, form_.scope);
    const Stamp stamp = make_stamp(viewer.fields);
    for (std::size_t b = 0; b < size_; ++b) {
      Cell& cell = place.cells[b];
      const Stamp other = stores ? note_store(cell, stamp, viewer) : note_load(cell, stamp, viewer);
      if (other != 0 && Machine::current->settings().finds_races) {
        fail(std::string("race: ") + (stores ? "a store" : "a load") + " of " + std::to_string(size_) +
             " bytes meets an access of " + viewer.order->name_of(other) + ", and nothing orders the two");
      }
    }
  }

  // Lets stores arrive that this access must see.
  void settle(const Place& place) const {
    if (Memory& memory = Machine::current->memory(); !memory.stores.empty() && place.is_global()) {
      memory.stores.settle(address_, size_, viewer_of(warp_, lane_, form_.scope), form_.kind != MemoryForm::Kind::load,
                           memory);
    }
  }

  // What the access loads; what its own thread stored may not have arrived.
  const std::uint8_t* loaded(const Place& place) {
    if (const Memory& memory = Machine::current->memory(); !memory.stores.empty() && place.is_global()) {
      std::memcpy(bytes_, place.bytes, size_);
      memory.stores.forward(address_, size_, viewer_of(warp_, lane_, form_.scope), bytes_);
      return bytes_;
    }
    return place.bytes;
  }

  // Stores `bytes`, or lets them wait in the buffer of stores.
  void store(const Place& place, const std::uint8_t (&bytes)[32]) {
    if (place.state != nullptr && (*place.state & kLost) != 0) {
      return;
    }
    Machine& machine = *Machine::current;
    const Buffered buffered = machine.settings().buffered;
    if (place.is_global() &&
        (buffered == Buffered::all || (buffered == Buffered::strong && form_.scope != Scope::none))) {
      PendingStore pending;
      pending.address = address_;
      pending.size = static_cast<std::uint32_t>(size_);
      std::memcpy(pending.bytes, bytes, size_);
      pending.stamp = make_stamp(viewer_of(warp_, lane_, form_.scope).fields);
      pending.activity = warp_.block->grid->activity;
      pending.publication = publication_of(warp_, lane_, form_);
      machine.memory().stores.add(pending);
      return;
    }
    settle(place);
    if (form_.scope != Scope::none || machine.memory().has_published()) {
      machine.memory().publish(address_, publication_of(warp_, lane_, form_), false);
    }
    std::memcpy(place.bytes, bytes, size_);
  }

  [[noreturn]] void fail(const std::string& what) const {
    char text[32];
    std::snprintf(text, sizeof text, " at 0x%llx", static_cast<unsigned long long>(address_));
    Machine::current->fail(warp_, instruction_, lane_, what + text);
  }

 private:
  void in_bounds(std::uint64_t offset, std::size_t bytes, const char* where) const {
    if (offset + size_ > bytes || offset > bytes) {
      fail("stray access of " + std::to_string(size_) + " bytes: " + where + " has " + std::to_string(bytes) +
           " bytes");
    }
  }

  Place in_global(std::uint64_t address) const {
    Allocation* const found = Machine::current->memory().find(address);
    if (found == nullptr) {
      fail("stray access of " + std::to_string(size_) + " bytes: there is no allocation");
    }
    const std::size_t offset = address - found->base;
    if (offset + size_ > found->bytes) {
      fail("stray access of " + std::to_string(size_) + " bytes past the end of " + found->name + ", which has " +
           std::to_string(found->bytes));
    }
    for (std::size_t b = 0; b < size_; ++b) {
      if ((found->state[offset + b] & kForbidden) != 0) {
        fail("stray access of " + std::to_string(size_) + " bytes outside of the memory in " + found->name +
             ", at byte " + std::to_string(offset));
      }
    }
    return {reinterpret_cast<std::uint8_t*>(address), found->state.data() + offset, found->cells.data() + offset};
  }

  Warp& warp_;
  const Instruction& instruction_;
  const MemoryForm& form_;
  std::uint32_t lane_;
  std::uint64_t address_;
  std::size_t size_;
  std::uint8_t bytes_[32] = {};
};

std::uint64_t load_bytes(const std::uint8_t* from, std::size_t bytes, bool is_signed) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  if (is_signed && bytes < 8 && (value >> (8 * bytes - 1) & 1) != 0) {
    value |= ~0ULL << (8 * bytes);
  }
  return value;
}

std::uint64_t updated(const MemoryForm& form, std::uint64_t old, std::uint64_t a, std::uint64_t b) {
  const std::uint64_t mask = form.bytes == 8 ? ~0ULL : (1ULL << (8 * form.bytes)) - 1;
  a &= mask;
  b &= mask;
  const auto smaller = [&](std::uint64_t x, std::uint64_t y) {
    return !form.is_signed   ? x < y
           : form.bytes == 8 ? static_cast<std::int64_t>(x) < static_cast<std::int64_t>(y)
                             : static_cast<std::int32_t>(x) < static_cast<std::int32_t>(y);
  };
  const std::string_view name = form.operation;
  if (name == "add") {
    return old + a;
  }
  if (name == "and" || name == "or" || name == "xor") {
    return name == "and" ? old & a : name == "or" ? old | a : old ^ a;
  }
  if (name == "min" || name == "max") {
    return smaller(old, a) == (name == "min") ? old : a;
  }
  if (name == "cas") {
    return old == a ? b : old;
  }
  if (name == "inc") {
    return old >= a ? 0 : old + 1;
  }
  return a;  // exch
}

// The lanes of one instruction, in the order of the schedule.
template <class Body>
void for_lanes(std::uint32_t lanes, Body body) {
  const bool backwards = Machine::current->settings().schedule == Schedule::descending;
  const std::uint32_t turn = Machine::current->settings().schedule == Schedule::random
                                 ? static_cast<std::uint32_t>(Machine::current->random()() % 32)
                                 : 0;
  for (std::uint32_t n = 0; n < 32; ++n) {
    const std::uint32_t lane = backwards ? 31 - n : (n + turn) % 32;
    if ((lanes >> lane & 1) != 0) {
      body(lane);
    }
  }
}

void load(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const MemoryForm& form = i.memory;
  const std::uint64_t* const addresses = warp.in(i.operand[form.vector]);
  std::uint64_t result[4][32];
  for_lanes(lanes, [&](std::uint32_t lane) {
    const std::uint64_t address = addresses[lane] + static_cast<std::uint64_t>(i.offset);
    Access access(warp, i, lane, address);
    const Place place = access.locate();
    access.settle(place);
    if (form.scope != Scope::none) {
      acquire(warp, lane, form, address);
    }
    access.note(place);
    const std::uint8_t* const loaded = access.loaded(place);
    for (std::size_t v = 0; v < form.vector; ++v) {
      result[v][lane] = load_bytes(loaded + v * form.bytes, form.bytes, form.is_signed);
    }
  });
  for (std::size_t v = 0; v < form.vector; ++v) {
    warp.put(i.operand[v], lanes, result[v]);
  }
}

void store(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const MemoryForm& form = i.memory;
  const std::uint64_t* const addresses = warp.in(i.operand[0]);
  for_lanes(lanes, [&](std::uint32_t lane) {
    const std::uint64_t address = addresses[lane] + static_cast<std::uint64_t>(i.offset);
    Access access(warp, i, lane, address);
    const Place place = access.locate();
    access.note(place);
    std::uint8_t bytes[32] = {};
    for (std::size_t v = 0; v < form.vector; ++v) {
      std::memcpy(bytes + v * form.bytes, &warp.in(i.operand[1 + v])[lane], form.bytes);
    }
    access.store(place, bytes);
  });
}

void update(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const MemoryForm& form = i.memory;
  const bool returns = form.kind == MemoryForm::Kind::atomic;
  const std::uint64_t* const addresses = warp.in(i.operand[returns ? 1 : 0]);
  const std::uint64_t* const a = warp.in(i.operand[returns ? 2 : 1]);
  const std::uint64_t* const b = form.operation == "cas" ? warp.in(i.operand[returns ? 3 : 2]) : a;
  std::uint64_t result[32];
  for_lanes(lanes, [&](std::uint32_t lane) {
    const std::uint64_t address = addresses[lane] + static_cast<std::uint64_t>(i.offset);
    Access access(warp, i, lane, address);
    const Place place = access.locate();
    access.settle(place);
    acquire(warp, lane, form, address);
    access.note(place);
    Machine::current->memory().publish(address, publication_of(warp, lane, form), true);
    const std::uint64_t old = load_bytes(place.bytes, form.bytes, form.is_signed);
    const std::uint64_t now = updated(
        form, old,
        form.is_signed ? load_bytes(reinterpret_cast<const std::uint8_t*>(a + lane), form.bytes, true) : a[lane],
        b[lane]);
    std::memcpy(place.bytes, &now, form.bytes);
    result[lane] = load_bytes(reinterpret_cast<const std::uint8_t*>(&old), form.bytes, false);
  });
  if (returns) {
    warp.put(i.operand[0], lanes, result);
  }
}

// A prefetch that is outside of all memory would be harmless, but says that a bound is missing.
void prefetch(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const std::uint64_t* const addresses = warp.in(i.operand[0]);
  for_lanes(lanes, [&](std::uint32_t lane) {
    Access(warp, i, lane, addresses[lane] + static_cast<std::uint64_t>(i.offset)).locate();
  });
}

}  // namespace

const Operation* memory_operation(std::string_view name, const MemoryForm& form) {
  static std::unordered_map<std::string, Operation> made;
  const auto [found, added] = made.try_emplace(std::string(name));
  if (added) {
    using Kind = MemoryForm::Kind;
    const bool swaps = form.operation == "cas";
    Operation& operation = found->second;
    operation.name = std::string(name);
    operation.flow = Flow::memory;
    operation.signature = form.kind == Kind::load        ? "=R,m"
                          : form.kind == Kind::store     ? "m,R"
                          : form.kind == Kind::prefetch  ? "m"
                          : form.kind == Kind::reduction ? "m,r"
                          : swaps                        ? "=r,m,r,r"
                                                         : "=r,m,r";
    operation.run = form.kind == Kind::load       ? load
                    : form.kind == Kind::store    ? store
                    : form.kind == Kind::prefetch ? prefetch
                                                  : update;
  }
  return &found->second;
}

}  // namespace gradwire::ptx
