"""The rollout controller: makes an endpoint object's pod template a revision, and moves traffic between revisions."""
