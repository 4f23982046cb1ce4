// Stacks of their own for the threads of an emulated kernel, and switches between them. Only simt_emulator.cpp includes
// this.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace gradwire::emulator {

inline constexpr std::size_t kStackBytes = std::size_t{128} << 10;

#if defined(__x86_64__)

// Saves the registers that a function call keeps on the stack of the fibre that is left. (swapcontext makes a system
// call each time, and clears the whole stack's shadow under AddressSanitizer.)
asm(R"(
.text
.p2align 4
.type gradwire_emulator_switch, @function
gradwire_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size gradwire_emulator_switch, .-gradwire_emulator_switch
)");
extern "C" void gradwire_emulator_switch(void** save, void* load);

class Context {
 public:
  void start_on(std::byte* stack, void (*entry)()) {
    void** top = reinterpret_cast<void**>(stack + kStackBytes);
    top[-1] = nullptr;  // there is no caller
    top[-2] = reinterpret_cast<void*>(entry);
    std::fill(top - 8, top - 2, nullptr);
    pointer_ = top - 8;
  }
  void switch_to(Context& to) { gradwire_emulator_switch(&pointer_, to.pointer_); }

 private:
  void* pointer_ = nullptr;
};

#else

class Context {
 public:
  void start_on(std::byte* stack, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }
  void switch_to(Context& to) { swapcontext(&context_, &to.context_); }

 private:
  ucontext_t context_{};
};

#endif

struct StackDeleter {
  void operator()(std::byte* stack) const { ::operator delete (stack, std::align_val_t{64}); }
};

}  // namespace gradwire::emulator
