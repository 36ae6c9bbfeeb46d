"""Code that depends on LLVM: memory, random numbers, softmax and exponentials in compiled code."""
