// PTX as the interpreter holds it: a module is the text that one nvcc run embedded, its kernels are decoded when they
// are first launched. Values of all types are 64-bit slots of 32 lanes; predicates are masks of lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::ptx {

/// What the interpreter found wrong in a program: its text names the kind, the kernel and the place.
struct Finding : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&, std::uint32_t lanes);

/// How the machine treats an instruction; all but `plain` and `memory` change the flow of a warp.
enum class Flow : std::uint8_t { plain, memory, branch, exit, barrier, warp_sync, nap, trap };

/// One form of an instruction, by its full name such as "add.s32".
/// The operands of `signature`, between commas: r a value, p a predicate, m an address, l a label, i a number, v2 and
/// v4 that many values in braces, R a value or some in braces, c a clock; `=` before r, p, v2, v4 or R marks a
/// destination.
struct Operation {
  std::string name;
  std::string signature;
  Handler run = nullptr;
  Flow flow = Flow::plain;
};

enum class Space : std::uint8_t { generic, global, shared, local, parameter, constant };
enum class Scope : std::uint8_t { none, block, device, system };

/// What a memory instruction does, from the parts of its name.
struct MemoryForm {
  enum class Kind : std::uint8_t { load, store, atomic, reduction, prefetch } kind = Kind::load;
  Space space = Space::generic;
  Scope scope = Scope::none;  // none: a weak access, which orders nothing
  bool acquires = false;
  bool releases = false;
  std::uint8_t vector = 1;
  std::uint8_t bytes = 0;  // of one element
  bool is_signed = false;
  std::string_view operation;  // of an atomic
};

inline constexpr std::uint32_t kNone = 0xFFFFFFFFU;

struct Instruction {
  const Operation* operation = nullptr;
  std::uint32_t operand[14] = {};  // slots of values, numbers of predicates; destinations come first
  std::uint8_t operands = 0;
  std::uint8_t destinations = 0;
  std::uint32_t value_operands = 0;  // a bit for each operand that is a value's slot
  std::int64_t offset = 0;           // of an address, or an immediate number
  // Of a branch: the number of an instruction; of a shuffle: a second destination, a predicate.
  std::uint32_t target = kNone;
  std::uint32_t guard = kNone;
  bool guard_negated = false;
  MemoryForm memory;
  std::uint32_t line = 0;       // in the module's text
  std::uint32_t place = kNone;  // index into Module::places
  std::string_view text;
};

/// Where an instruction comes from; the chain of functions that were inlined, the innermost first.
struct SourcePlace {
  std::uint32_t file = 0;
  std::uint32_t line = 0;
  std::uint32_t inlined_at = kNone;  // another place
};

struct Parameter {
  std::string name;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// A variable of a module or kernel, in shared, local, global or constant memory.
struct Variable {
  Space space = Space::global;
  std::uint64_t address = 0;  // an offset for shared and local ones
  std::size_t bytes = 0;
};

// Slots of a warp that hold special registers; the registers of a kernel follow.
enum Special : std::uint32_t {
  kThreadX,
  kThreadY,
  kThreadZ,
  kBlockX,
  kBlockY,
  kBlockZ,
  kBlockSizeX,
  kBlockSizeY,
  kBlockSizeZ,
  kBlocksX,
  kBlocksY,
  kBlocksZ,
  kLane,
  kWarpNumber,
  kLanesBelow,
  kLanesUpTo,
  kSharedBytes,
  kSpecials
};  // clang-format keeps this list as it is

class Module;

struct Kernel {
  const Module* module = nullptr;
  std::string name;  // as it is in PTX
  std::string readable;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  std::string_view body;
  std::uint32_t first_line = 0;

  // Set by decode():
  bool decoded = false;
  std::vector<Instruction> code;
  std::vector<std::uint64_t> constants;  // 32 of each: slots behind those of registers
  std::uint32_t slots = 0;               // of special registers and registers
  std::uint32_t predicates = 0;          // the first two are false and true
  std::size_t shared_bytes = 0;
  std::size_t local_bytes = 0;
  std::map<std::string, Variable, std::less<>> variables;
};

/// A module. Variables in global and constant memory are allocated by `allocate`.
class Module {
 public:
  using Allocate = std::uint64_t (*)(std::size_t bytes, std::string_view name);
  /// Reads what is outside of kernels. Throws Finding where it meets a directive that it does not know.
  Module(std::string text, Allocate allocate);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Returns the kernel of that name, decoded; throws Finding if an instruction is unknown or there is no such kernel.
  Kernel& kernel(std::string_view name);
  [[nodiscard]] const Variable* variable(std::string_view name) const;
  /// Returns "file:line, inlined at file:line" of an instruction, or nothing without -lineinfo.
  [[nodiscard]] std::string source_of(const Instruction& instruction) const;
  /// Returns the place of an instruction outside of headers of CUDA and of simt.hpp: "file:line".
  [[nodiscard]] std::string statement_of(const Instruction& instruction) const;

  std::vector<SourcePlace> places;

 private:
  [[nodiscard]] std::uint32_t lines_between(std::size_t from, std::size_t to) const;
  void read_kernel(std::size_t& at, std::uint32_t& line);
  void read_variable(std::string_view statement, std::uint32_t line);
  [[nodiscard]] std::string place_text(const SourcePlace& place) const;

  std::string text_;
  Allocate allocate_;
  std::map<std::string, Kernel, std::less<>> kernels_;
  std::map<std::string, Variable, std::less<>> variables_;
  std::map<std::uint32_t, std::string> files_;
};

/// Returns the form named `name`, or null. Forms of memory instructions are made as they come (memory_form).
const Operation* find_operation(std::string_view name);
/// Reads the parts of a memory instruction's name; returns false if one is unknown.
bool memory_form(std::string_view name, MemoryForm& form);
const Operation* memory_operation(std::string_view name, const MemoryForm& form);

/// Decodes the kernel's body.
void decode(Module& module, Kernel& kernel);
/// Gives registers that are not alive at the same time the same slots.
void allocate_slots(Kernel& kernel);
/// Makes the interpreter drop parts of a kernel, for mutation tests (mutants.cpp).
void mutate(Module& module, Kernel& kernel);

}  // namespace gradwire::ptx
