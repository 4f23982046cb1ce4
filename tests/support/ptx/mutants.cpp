// Drops one statement's barriers or bounds from all kernels, so that a mutation test can see which tests notice:
// GRADWIRE_PTX_MUTANT=KIND@FILE:LINE,.. with the kinds
//   barrier   removes barriers of blocks and warps
//   weak      makes releases and acquires relaxed
//   true      makes comparisons true
//   false     makes them false
// GRADWIRE_PTX_SITES=FILE appends all such places of each kernel that is decoded, once for each instruction.
#include <cstdlib>
#include <fstream>

#include "tests/support/ptx/forms.hpp"
#include "tests/support/ptx/module.hpp"

namespace gradwire::ptx {
namespace {

std::vector<std::string> kinds_of(const Instruction& instruction) {
  if (instruction.operation->flow == Flow::barrier || instruction.operation->name == "bar.warp.sync") {
    return {"barrier"};
  }
  if (instruction.memory.acquires || instruction.memory.releases) {
    return {"weak"};
  }
  if (instruction.operation->name.starts_with("setp.")) {
    return {"true", "false"};
  }
  return {};
}

void drop(Instruction& instruction) {
  // What a barrier combines is then the thread's own value.
  static const Operation none{"nop", "", [](Warp&, const Instruction&, std::uint32_t) {}, Flow::plain};
  instruction.operation =
      instruction.operation->name.find("red") != std::string::npos ? find_operation("mov.pred") : &none;
  if (instruction.operation == &none) {
    instruction.operands = 0;
    instruction.destinations = 0;
  }
}

void fix(Instruction& instruction, bool value) {
  instruction.operation = find_operation("mov.pred");
  instruction.operand[1] = value ? 1 : 0;
  instruction.operands = 2;
  instruction.value_operands = 0;
}

}  // namespace

void mutate(Module& module, Kernel& kernel) {
  const char* const sites = std::getenv("GRADWIRE_PTX_SITES");
  const char* const mutant = std::getenv("GRADWIRE_PTX_MUTANT");
  if (sites == nullptr && mutant == nullptr) {
    return;
  }
  const std::string mutants = mutant == nullptr ? "" : ',' + std::string(mutant) + ',';
  std::ofstream list;
  if (sites != nullptr) {
    list.open(sites, std::ios::app);
  }
  for (Instruction& instruction : kernel.code) {
    const std::string place = module.statement_of(instruction);
    for (const std::string& kind : kinds_of(instruction)) {
      if (list.is_open()) {
        list << kind << '@' << place << '\n';
      }
      if (mutants.find(',' + kind + '@' + place + ',') == std::string::npos) {
        continue;
      }
      if (kind == "barrier") {
        drop(instruction);
      } else if (kind == "weak") {
        instruction.memory.acquires = instruction.memory.releases = false;
      } else {
        fix(instruction, kind == "true");
      }
      break;
    }
  }
}

}  // namespace gradwire::ptx
