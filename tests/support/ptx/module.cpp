#include "tests/support/ptx/module.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/support/ptx/text.hpp"

namespace gradwire::ptx {

Module::Module(std::string text, Allocate allocate) : text_(std::move(text)), allocate_(allocate) {
  std::size_t at = 0;
  std::uint32_t number = 1;
  while (at < text_.size()) {
    const std::size_t end = std::min(text_.find('\n', at), text_.size());
    const std::string_view line = trim(without_comment(std::string_view(text_).substr(at, end - at)));
    if (line.find(".entry") != std::string_view::npos) {
      read_kernel(at, number);
      continue;
    }
    if (line.starts_with(".section")) {
      const std::size_t close = text_.find("\n\t}", at);
      const std::size_t next = close == std::string::npos ? text_.size() : close + 3;
      number += lines_between(at, next);
      at = next;
      continue;
    }
    if (line.starts_with(".file")) {
      const std::size_t quote = line.find('"');
      files_[static_cast<std::uint32_t>(std::strtoul(line.data() + 5, nullptr, 10))] =
          std::string(line.substr(quote + 1, line.find('"', quote + 1) - quote - 1));
    } else if (line.find(".global ") != std::string_view::npos || line.find(".const ") != std::string_view::npos) {
      const std::size_t semicolon = text_.find(';', at);
      read_variable(trim(std::string_view(text_).substr(at, semicolon - at)), number);
      number += lines_between(at, semicolon);
      at = semicolon + 1;
      continue;
    } else if (!line.empty() && line != "}" && !line.starts_with(".version") && !line.starts_with(".target") &&
               !line.starts_with(".address_size") && line[0] != '\0') {
      throw Finding("unknown directive: PTX line " + std::to_string(number) + ": " + std::string(line));
    }
    at = end + 1;
    ++number;
  }
}

namespace {

// Reads `.align N .TYPE name[bytes]` behind the state space.
Declared read_declared(std::string_view text) {
  Declared declared;
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) {
    if (word == ".align") {
      declared.align = std::strtoul(next_word(text).data(), nullptr, 10);
    } else if (word[0] == '.') {
      if (const std::size_t bytes = type_bytes(word.substr(1)); bytes != 0) {
        declared.element = bytes;
      }
    } else {
      const std::size_t bracket = word.find('[');
      declared.name = std::string(word.substr(0, bracket));
      declared.bytes = declared.element;
      if (bracket != std::string_view::npos) {
        declared.bytes *= std::strtoul(word.data() + bracket + 1, nullptr, 10);
      }
      declared.rest = trim(text);
      break;
    }
  }
  declared.align = std::max(declared.align, declared.element);
  return declared;
}

}  // namespace

Declared declared_variable(std::string_view text) { return read_declared(text); }

std::uint32_t Module::lines_between(std::size_t from, std::size_t to) const {
  return lines_in(std::string_view(text_).substr(from, to - from));
}

void Module::read_kernel(std::size_t& at, std::uint32_t& line) {
  Kernel kernel;
  kernel.module = this;
  std::string_view rest(text_);
  const std::size_t open = text_.find('(', at);
  const std::size_t brace = text_.find('{', at);
  std::string_view head = trim(rest.substr(at, std::min(open, brace) - at));
  kernel.name = std::string(trim(head.substr(head.find(".entry") + 6)));
  int status = 0;
  char* const readable = abi::__cxa_demangle(kernel.name.c_str(), nullptr, nullptr, &status);
  kernel.readable = status == 0 ? readable : kernel.name;
  std::free(readable);
  if (const std::size_t bracket = kernel.readable.rfind('('); bracket != std::string::npos && status == 0) {
    kernel.readable.resize(bracket);
  }
  if (open < brace) {
    const std::size_t close = text_.find(')', open);
    for (const std::string_view part : split(rest.substr(open + 1, close - open - 1), ',')) {
      const Declared declared = read_declared(trim(part));
      if (declared.name.empty()) {
        continue;
      }
      kernel.parameter_bytes = (kernel.parameter_bytes + declared.align - 1) / declared.align * declared.align;
      kernel.parameters.push_back({declared.name, kernel.parameter_bytes, declared.bytes});
      kernel.parameter_bytes += declared.bytes;
    }
  }
  int depth = 1;
  std::size_t end = brace + 1;
  for (; end < text_.size() && depth > 0; ++end) {
    depth += text_[end] == '{' ? 1 : text_[end] == '}' ? -1 : 0;
  }
  kernel.first_line = line + lines_between(at, brace + 1);
  kernel.body = rest.substr(brace + 1, end - brace - 2);
  line += lines_between(at, end);
  at = end;
  kernels_.emplace(kernel.name, std::move(kernel));
}

void Module::read_variable(std::string_view statement, std::uint32_t line) {
  Variable variable;
  variable.space = statement.find(".const") != std::string_view::npos ? Space::constant : Space::global;
  const Declared declared = read_declared(statement);
  if (declared.name.empty() || statement.find(".extern") != std::string_view::npos) {
    throw Finding("unknown variable: PTX line " + std::to_string(line) + ": " + std::string(statement));
  }
  variable.bytes = declared.bytes;
  variable.address = allocate_(declared.bytes, declared.name);
  auto* const to = reinterpret_cast<unsigned char*>(variable.address);
  std::memset(to, 0, declared.bytes);
  if (const std::size_t equal = declared.rest.find('='); equal != std::string_view::npos) {
    std::string_view values = declared.rest.substr(equal + 1);
    std::size_t offset = 0;
    while (offset < declared.bytes) {
      const std::size_t digit = values.find_first_of("0123456789-");
      if (digit == std::string_view::npos) {
        break;
      }
      values.remove_prefix(digit);
      char* after = nullptr;
      const unsigned long long value = std::strtoull(values.data(), &after, 0);
      std::memcpy(to + offset, &value, declared.element);
      offset += declared.element;
      values.remove_prefix(static_cast<std::size_t>(after - values.data()));
    }
  }
  variables_.emplace(declared.name, variable);
}

Kernel& Module::kernel(std::string_view name) {
  const auto found = kernels_.find(name);
  if (found == kernels_.end()) {
    throw Finding("no kernel named " + std::string(name) + " in the module");
  }
  if (!found->second.decoded) {
    decode(*this, found->second);
    mutate(*this, found->second);
    allocate_slots(found->second);
    found->second.decoded = true;
  }
  return found->second;
}

const Variable* Module::variable(std::string_view name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? nullptr : &found->second;
}

std::string Module::place_text(const SourcePlace& place) const {
  const auto file = files_.find(place.file);
  std::string name = file == files_.end() ? "file " + std::to_string(place.file)
                                          : std::filesystem::path(file->second).lexically_normal().string();
  for (const char* root : {"/kernels/", "/tests/", "/include/gradwire/"}) {
    if (const std::size_t at = name.rfind(root); at != std::string::npos) {
      name.erase(0, at + 1);
      break;
    }
  }
  return name + ":" + std::to_string(place.line);
}

std::string Module::source_of(const Instruction& instruction) const {
  std::string text;
  for (std::uint32_t at = instruction.place; at != kNone && text.size() < 400; at = places[at].inlined_at) {
    text += (text.empty() ? "" : ", inlined at ") + place_text(places[at]);
  }
  return text;
}

std::string Module::statement_of(const Instruction& instruction) const {
  std::string text;
  for (std::uint32_t at = instruction.place; at != kNone; at = places[at].inlined_at) {
    text = place_text(places[at]);
    if (text[0] != '/' && text.find("/simt.hpp:") == std::string::npos) {
      break;
    }
  }
  return text;
}

}  // namespace gradwire::ptx
