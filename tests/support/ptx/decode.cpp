// Decodes the body of a kernel: statements, scopes, labels, registers, operands.
#include <cstring>
#include <unordered_map>

#include "tests/support/ptx/addresses.hpp"
#include "tests/support/ptx/module.hpp"
#include "tests/support/ptx/text.hpp"

namespace gradwire::ptx {

class Decoder {
 public:
  Decoder(Module& module, Kernel& kernel) : module_(module), kernel_(kernel) {
    scopes_.emplace_back();
    kernel_.slots = kSpecials;
    kernel_.predicates = 2;
  }

  void run() {
    const std::string_view body = kernel_.body;
    std::size_t at = 0;
    line_ = kernel_.first_line;
    while (at < body.size()) {
      const char c = body[at];
      if (c == '\n') {
        ++line_;
        ++at;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at;
      } else if (body.compare(at, 2, "//") == 0) {
        at = std::min(body.find('\n', at), body.size());
      } else if (c == '{') {
        scopes_.emplace_back();
        ++at;
      } else if (c == '}') {
        scopes_.pop_back();
        ++at;
      } else if (body.compare(at, 5, ".loc\t") == 0 || body.compare(at, 5, ".loc ") == 0) {
        const std::size_t end = std::min(body.find('\n', at), body.size());
        location(body.substr(at, end - at));
        at = end;
      } else {
        const std::size_t end = body.find_first_of(";:\n", at);
        if (end != std::string_view::npos && body[end] == ':') {
          labels_[std::string(trim(body.substr(at, end - at)))] = static_cast<std::uint32_t>(kernel_.code.size());
          at = end + 1;
          continue;
        }
        const std::size_t semicolon = std::min(body.find(';', at), body.size());
        const std::string_view text = body.substr(at, semicolon - at);
        statement(trim(text));
        line_ += lines_in(text);
        at = semicolon + 1;
      }
    }
    for (const auto& [index, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) {
        throw Finding("unknown label " + label + " in " + kernel_.readable);
      }
      kernel_.code[index].target = found->second;
    }
  }

 private:
  struct Register {
    std::uint32_t number = 0;
    bool predicate = false;
  };

  [[noreturn]] void fail(const std::string& what, std::string_view text) const {
    throw Finding(what + ": PTX line " + std::to_string(line_) + " of " + kernel_.readable + ": " + std::string(text));
  }

  void location(std::string_view text) {
    std::uint32_t number[6] = {};
    int count = 0;
    const std::size_t inlined = text.find("inlined_at");
    const auto numbers = [&](std::string_view part) {
      const char* at = part.data();
      for (int i = 0; i < 3; ++i) {
        char* after = nullptr;
        number[count++] = static_cast<std::uint32_t>(std::strtoul(at, &after, 10));
        at = after;
      }
    };
    numbers(text.substr(4));
    SourcePlace place{number[0], number[1], kNone};
    if (inlined != std::string_view::npos) {
      numbers(text.substr(inlined + 10));
      const auto outer = seen_.find(key(number + 3));
      place.inlined_at = outer != seen_.end() ? outer->second : add_place({number[3], number[4], kNone});
    }
    place_ = add_place(place);
    seen_[key(number)] = place_;
  }
  static std::uint64_t key(const std::uint32_t* number) {
    return (std::uint64_t{number[0]} << 48) ^ (std::uint64_t{number[1]} << 16) ^ number[2];
  }
  std::uint32_t add_place(const SourcePlace& place) {
    module_.places.push_back(place);
    return static_cast<std::uint32_t>(module_.places.size() - 1);
  }

  void statement(std::string_view text) {
    if (text.empty() || text.starts_with(".pragma")) {
      return;
    }
    if (text[0] == '.') {
      declare(text);
      return;
    }
    Instruction instruction;
    instruction.line = line_;
    instruction.place = place_;
    instruction.text = text;
    if (text[0] == '@') {
      std::string_view guard = next_word(text).substr(1);
      instruction.guard_negated = guard[0] == '!';
      guard.remove_prefix(instruction.guard_negated ? 1 : 0);
      instruction.guard = find(guard).number;
      text = trim(text);
    }
    std::string_view name = next_word(text);
    std::vector<std::string_view> operands = split(text, ',');
    operation(instruction, name, operands);
    kernel_.code.push_back(instruction);
  }

  void declare(std::string_view text) {
    std::string_view rest = text;
    const std::string_view word = next_word(rest);
    if (word == ".reg") {
      const std::string_view type = next_word(rest);
      for (const std::string_view part : split(rest, ',')) {
        const std::size_t bracket = part.find('<');
        Register first{type == ".pred" ? kernel_.predicates : kernel_.slots, type == ".pred"};
        std::uint32_t count = 1;
        if (bracket != std::string_view::npos) {
          count = static_cast<std::uint32_t>(std::strtoul(part.data() + bracket + 1, nullptr, 10));
          for (std::uint32_t i = 0; i < count; ++i) {
            scopes_.back()[std::string(part.substr(0, bracket)) + std::to_string(i)] = {first.number + i,
                                                                                        first.predicate};
          }
        } else {
          scopes_.back()[std::string(part)] = first;
        }
        (first.predicate ? kernel_.predicates : kernel_.slots) += count;
      }
      return;
    }
    if (word == ".shared" || word == ".local") {
      const Declared declared = declared_variable(rest);
      std::size_t& bytes = word == ".shared" ? kernel_.shared_bytes : kernel_.local_bytes;
      bytes = (bytes + declared.align - 1) / declared.align * declared.align;
      kernel_.variables[declared.name] = {word == ".shared" ? Space::shared : Space::local, bytes, declared.bytes};
      bytes += declared.bytes;
      return;
    }
    fail("unknown directive", text);
  }

  Register find(std::string_view name) const {
    for (std::size_t scope = scopes_.size(); scope-- > 0;) {
      if (const auto found = scopes_[scope].find(std::string(name)); found != scopes_[scope].end()) {
        return found->second;
      }
    }
    fail("unknown register", name);
  }

  // Finds the form, and reads the operands that its signature names.
  void operation(Instruction& instruction, std::string_view name, std::vector<std::string_view>& operands) {
    std::string full(name);
    if (operands.size() == 2 && (operands[1].starts_with("%clock") || operands[1] == "%globaltimer")) {
      full = "mov.clock";
    } else if (name.starts_with("mov.b") && (operands[0][0] == '{' || operands[1][0] == '{')) {
      const bool unpacks = operands[0][0] == '{';
      const std::size_t parts =
          split(operands[unpacks ? 0 : 1].substr(1, operands[unpacks ? 0 : 1].size() - 2), ',').size();
      full = (unpacks ? "unpack." : "pack.") + std::to_string(std::strtoul(name.data() + 5, nullptr, 10) / parts) +
             "x" + std::to_string(parts);
    }
    instruction.operation = find_operation(full);
    if (instruction.operation == nullptr) {
      if (!memory_form(full, instruction.memory)) {
        fail("unknown instruction " + full, instruction.text);
      }
      instruction.operation = memory_operation(full, instruction.memory);
    }
    const std::string& signature = instruction.operation->signature;
    const std::vector<std::string_view> kinds = split(signature, ',');
    if (kinds.size() != operands.size()) {
      fail("another number of operands than " + full + " " + signature, instruction.text);
    }
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      operand(instruction, kinds[i], operands[i]);
    }
  }

  void put(Instruction& instruction, std::uint32_t number, bool value) {
    if (instruction.operands == std::size(instruction.operand)) {
      fail("too many operands", instruction.text);
    }
    instruction.value_operands |= value ? 1U << instruction.operands : 0U;
    instruction.operand[instruction.operands++] = number;
  }

  void operand(Instruction& instruction, std::string_view kind, std::string_view text) {
    const bool destination = kind[0] == '=';
    kind.remove_prefix(destination ? 1 : 0);
    if (kind == "c") {
      return;
    }
    if (kind == "l") {
      branches_.emplace_back(kernel_.code.size(), std::string(text));
    } else if (kind == "i") {
      if (text[0] == '%') {
        fail("a number must be here", instruction.text);
      }
      instruction.offset = std::strtoll(std::string(text).c_str(), nullptr, 0);
    } else if (kind == "m") {
      address(instruction, text);
    } else if (text[0] == '{') {
      for (const std::string_view part : split(text.substr(1, text.size() - 2), ',')) {
        destination ? put_destination(instruction, part, false) : put(instruction, value(part), true);
      }
    } else if (destination) {
      const std::size_t bar = text.find('|');
      put_destination(instruction, text.substr(0, bar), kind == "p");
      if (bar != std::string_view::npos) {
        if (!instruction.operation->name.starts_with("shfl.")) {
          fail("a second destination", instruction.text);
        }
        instruction.target = find(text.substr(bar + 1)).number;
      }
    } else if (kind == "p") {
      put(instruction, predicate(text), false);
    } else {
      put(instruction, value(text), true);
    }
  }

  void put_destination(Instruction& instruction, std::string_view text, bool predicate) {
    if (text == "_") {
      scopes_[0].try_emplace("_", Register{kernel_.slots++, false});
    }
    const Register found = find(text);
    if (found.predicate != predicate) {
      fail("a register of another kind", instruction.text);
    }
    put(instruction, found.number, !predicate);
    ++instruction.destinations;
  }

  std::uint32_t predicate(std::string_view text) {
    if (text[0] != '%') {
      return std::strtoll(std::string(text).c_str(), nullptr, 0) != 0 ? 1 : 0;
    }
    return find(text).number;
  }

  void address(Instruction& instruction, std::string_view text) {
    if (text.size() < 2 || text[0] != '[') {
      fail("an address must be here", instruction.text);
    }
    text = trim(text.substr(1, text.size() - 2));
    const std::size_t plus = text.find('+');
    put(instruction, value(trim(text.substr(0, plus))), true);
    if (plus != std::string_view::npos) {
      instruction.offset = std::strtoll(std::string(text.substr(plus + 1)).c_str(), nullptr, 0);
    }
  }

  std::uint32_t constant(std::uint64_t bits) {
    const auto [found, added] = constants_.try_emplace(bits, static_cast<std::uint32_t>(constants_.size()));
    if (added) {
      kernel_.constants.insert(kernel_.constants.end(), 32, bits);
    }
    return kConstant | found->second;
  }

  // Returns the slot of a register, a special one, or a constant.
  std::uint32_t value(std::string_view text) {
    if (text[0] == '%') {
      static const std::unordered_map<std::string_view, std::uint32_t> specials = {
          {"%tid.x", kThreadX},
          {"%tid.y", kThreadY},
          {"%tid.z", kThreadZ},
          {"%ctaid.x", kBlockX},
          {"%ctaid.y", kBlockY},
          {"%ctaid.z", kBlockZ},
          {"%ntid.x", kBlockSizeX},
          {"%ntid.y", kBlockSizeY},
          {"%ntid.z", kBlockSizeZ},
          {"%nctaid.x", kBlocksX},
          {"%nctaid.y", kBlocksY},
          {"%nctaid.z", kBlocksZ},
          {"%laneid", kLane},
          {"%warpid", kWarpNumber},
          {"%lanemask_lt", kLanesBelow},
          {"%lanemask_le", kLanesUpTo},
          {"%dynamic_smem_size", kSharedBytes}};
      if (const auto special = specials.find(text); special != specials.end()) {
        return special->second;
      }
      const Register found = find(text);
      if (found.predicate) {
        fail("a predicate where a value must be", text);
      }
      return found.number;
    }
    if (text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) {
      const std::string digits(text);
      if (digits.size() == 10 && (digits[1] == 'f' || digits[1] == 'F')) {
        return constant(std::strtoull(digits.c_str() + 2, nullptr, 16));
      }
      if (digits.size() == 18 && (digits[1] == 'd' || digits[1] == 'D')) {
        return constant(std::strtoull(digits.c_str() + 2, nullptr, 16));
      }
      return constant(digits[0] == '-' ? static_cast<std::uint64_t>(std::strtoll(digits.c_str(), nullptr, 0))
                                       : std::strtoull(digits.c_str(), nullptr, 0));
    }
    if (text == "WARP_SZ") {
      return constant(32);
    }
    for (const Parameter& parameter : kernel_.parameters) {
      if (parameter.name == text) {
        return constant(kParameterWindow + parameter.offset);
      }
    }
    if (const auto found = kernel_.variables.find(text); found != kernel_.variables.end()) {
      return constant(found->second.address);
    }
    if (const Variable* variable = module_.variable(text); variable != nullptr) {
      return constant(variable->address);
    }
    fail("unknown name", text);
  }

  Module& module_;
  Kernel& kernel_;
  std::uint32_t line_ = 0;
  std::uint32_t place_ = kNone;
  std::unordered_map<std::uint64_t, std::uint32_t> seen_;  // the last place at a file, line and column
  std::vector<std::unordered_map<std::string, Register>> scopes_;
  std::unordered_map<std::string, std::uint32_t> labels_;
  std::vector<std::pair<std::size_t, std::string>> branches_;
  std::unordered_map<std::uint64_t, std::uint32_t> constants_;
};

void decode(Module& module, Kernel& kernel) { Decoder(module, kernel).run(); }

}  // namespace gradwire::ptx
