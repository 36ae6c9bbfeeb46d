"""What speaks to the compiler: memory, random numbers, softmax and exponentials in compiled code."""
